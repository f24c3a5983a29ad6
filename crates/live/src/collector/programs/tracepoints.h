/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Tracepoints: the stable records that the format files describe, for kernels whose modules have no BTF. */

/* The verifier of Linux 5.4 accepts an unknown offset only in the source address of probe_read(). */
INLINE u64 field(void *record, u32 at, u32 size)
{
	u64 value = 0;
	if (size == 1)
		probe_read(&value, 1, record + at);
	else if (size == 4)
		probe_read(&value, 4, record + at);
	else
		probe_read(&value, 8, record + at);
	return value;
}

SEC("tracepoint/kvm/kvm_exit") int tracepoint_exit(void *record)
{
	if (!running)
		return KEEP;
	u64 id = get_current_pid_tgid();
	u64 key = (u32)id;
	struct vcpu *vcpu = find_vcpu(key);
	close_last(record, vcpu);
	if (UNLIKELY(!vcpu || vcpu->id != id))
		vcpu = begin_vcpu(vcpu, key, id, NO_VCPU);
	return left_guest(record, vcpu, field(record, exit_reason_at, 4));
}

SEC("tracepoint/kvm/kvm_entry") int tracepoint_entry(void *record)
{
	struct vcpu *vcpu = find_vcpu((u32)get_current_pid_tgid());
	if (vcpu && UNLIKELY(vcpu->number == NO_VCPU))
		vcpu->number = field(record, entry_vcpu_at, 4);
	return entered_guest(record, vcpu);
}

SEC("tracepoint/kvm/kvm_pio") int tracepoint_pio(void *record)
{
	u32 kind = field(record, pio_rw_at, 4) ? KIND_PORT_WRITE : KIND_PORT_READ;
	return accessed(record, kind, SORT_PORT, field(record, pio_port_at, 4));
}

SEC("tracepoint/kvm/kvm_mmio") int tracepoint_mmio(void *record)
{
	return mmio(record, field(record, mmio_type_at, 4), field(record, mmio_gpa_at, 8));
}

SEC("tracepoint/kvm/kvm_fast_mmio") int tracepoint_fast_mmio(void *record)
{
	return accessed(record, KIND_FAST_MMIO, SORT_WHOLE, field(record, fast_mmio_gpa_at, 8));
}

SEC("tracepoint/kvm/kvm_msr") int tracepoint_msr(void *record)
{
	u32 kind = field(record, msr_write_at, 4) ? KIND_MSR_WRITE : KIND_MSR_READ;
	return accessed(record, kind, SORT_MSR, field(record, msr_ecx_at, 4));
}

SEC("tracepoint/kvm/kvm_apic") int tracepoint_apic(void *record)
{
	u32 kind = field(record, apic_rw_at, 4) ? KIND_APIC_WRITE : KIND_APIC_READ;
	return accessed(record, kind, SORT_APIC, field(record, apic_reg_at, 4));
}

SEC("tracepoint/kvm/kvm_avic_incomplete_ipi") int tracepoint_incomplete_ipi(void *record)
{
	return accessed(record, KIND_INCOMPLETE_IPI, SORT_WHOLE, field(record, ipi_id_at, 4));
}

SEC("tracepoint/kvm/kvm_avic_unaccelerated_access") int tracepoint_unaccelerated(void *record)
{
	u32 kind = field(record, unaccelerated_rw_at, 1) ? KIND_UNACCELERATED_WRITE : KIND_UNACCELERATED_READ;
	return accessed(record, kind, SORT_WHOLE, field(record, unaccelerated_offset_at, 4));
}

SEC("tracepoint/kvm/kvm_nested_vmexit") int tracepoint_nested_exit(void *record)
{
	return nested(record, KIND_NESTED_EXIT);
}

SEC("tracepoint/kvm/kvm_nested_vmexit_inject") int tracepoint_nested_to_l1(void *record)
{
	return nested(record, KIND_NESTED_TO_L1);
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Raw tracepoints: the arguments as KVM passes them, before the kernel makes a record of them, which costs more than
 * all that is done here. In return, the reason must be read from KVM's own structures, whose layout comes from the
 * modules' BTF.
 */

INLINE u32 raw_reason(void *vcpu)
{
	u32 reason = 0;
	if (svm) {
		void *vmcb = 0;
		probe_read(&vmcb, sizeof(vmcb), vcpu + vmcb_at);
		probe_read(&reason, sizeof(reason), vmcb + reason_at);
	} else {
		probe_read(&reason, sizeof(reason), vcpu + reason_at);
	}
	return reason;
}

INLINE u32 raw_number(void *vcpu)
{
	u32 number = NO_VCPU;
	probe_read(&number, sizeof(number), vcpu + vcpu_id_at);
	return number;
}

SEC("raw_tp/kvm_exit") int raw_exit(u64 *arguments)
{
	if (!running)
		return KEEP;
	u64 key = vcpu_argument ? arguments[1] : arguments[0];
	u64 id = get_current_pid_tgid();
	struct vcpu *vcpu = find_vcpu(key);
	close_last(arguments, vcpu);
	if (UNLIKELY(!vcpu || vcpu->id != id))
		vcpu = begin_vcpu(vcpu, key, id, raw_number((void *)key));
	return left_guest(arguments, vcpu, raw_reason((void *)key));
}

SEC("raw_tp/kvm_entry") int raw_entry(u64 *arguments)
{
	return entered_guest(arguments, find_vcpu(arguments[0]));
}

SEC("raw_tp/kvm_pio") int raw_pio(u64 *arguments)
{
	return accessed(arguments, (u32)arguments[0] ? KIND_PORT_WRITE : KIND_PORT_READ, SORT_PORT, (u32)arguments[1]);
}

SEC("raw_tp/kvm_mmio") int raw_mmio(u64 *arguments)
{
	return mmio(arguments, (u32)arguments[0], arguments[2]);
}

SEC("raw_tp/kvm_fast_mmio") int raw_fast_mmio(u64 *arguments)
{
	return accessed(arguments, KIND_FAST_MMIO, SORT_WHOLE, arguments[0]);
}

SEC("raw_tp/kvm_msr") int raw_msr(u64 *arguments)
{
	return accessed(arguments, (u32)arguments[0] ? KIND_MSR_WRITE : KIND_MSR_READ, SORT_MSR, (u32)arguments[1]);
}

SEC("raw_tp/kvm_apic") int raw_apic(u64 *arguments)
{
	return accessed(arguments, (u32)arguments[0] ? KIND_APIC_WRITE : KIND_APIC_READ, SORT_APIC, (u32)arguments[1]);
}

SEC("raw_tp/kvm_avic_incomplete_ipi") int raw_incomplete_ipi(u64 *arguments)
{
	return accessed(arguments, KIND_INCOMPLETE_IPI, SORT_WHOLE, (u32)arguments[3]);
}

SEC("raw_tp/kvm_avic_unaccelerated_access") int raw_unaccelerated(u64 *arguments)
{
	u32 kind = (u8)arguments[3] ? KIND_UNACCELERATED_WRITE : KIND_UNACCELERATED_READ;
	return accessed(arguments, kind, SORT_WHOLE, (u32)arguments[1]);
}

SEC("raw_tp/kvm_nested_vmexit") int raw_nested_exit(u64 *arguments)
{
	return nested(arguments, KIND_NESTED_EXIT);
}

SEC("raw_tp/kvm_nested_vmexit_inject") int raw_nested_to_l1(u64 *arguments)
{
	return nested(arguments, KIND_NESTED_TO_L1);
}

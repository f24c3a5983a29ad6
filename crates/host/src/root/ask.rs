//! Questions that a live machine answers otherwise than by files: instructions, registers, its log, commands.

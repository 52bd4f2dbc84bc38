"""Kernels over tall and skinny blocks of rows held in registers."""

"""The experiments of the paper: its setting and data, Tables 1 and 2, the ablation and the growth with N."""

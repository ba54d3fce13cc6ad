"""How many GPUs a load needs: from raw tables of a sweep to GPU counts with intervals."""

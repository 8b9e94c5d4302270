"""What JAX's operations do, by the names they have in a trace."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: what ``ref[...]`` and ``ref[...] = value`` are
GET = "get"
SETS = _names("swap addupdate")

LOADS = _names("get load async_load wgmma_accumulator_deref")
STORES = SETS | _names("store wgmma_accumulator_store")

#: element by element, with a lowering for one number at warp level on some JAX that is supported
SCALAR = _names("""
    add add_any and convert_element_type copy div eq floor ge gt le lt max min mul ne neg not or rem select_n
    shift_left shift_right_arithmetic shift_right_logical sign sub xor
""")

#: element by element, for whole arrays only
_ARRAY = _names("""
    abs acos acosh asin asinh atan atan2 atanh bitcast_convert_type cbrt ceil clamp cos cosh erf erf_inv erfc exp exp2
    expm1 integer_pow is_finite log log1p logistic nextafter population_count pow reduce_precision round rsqrt sin sinh
    sqrt square stop_gradient tan tanh
""")

#: makes an array of a number or a row, or of nothing
SPREADS = _names("broadcast_in_dim iota")

#: does nothing but compute
COMPUTES = (
    SCALAR
    | _ARRAY
    | SPREADS
    | _names("""
    argmax argmin axis_index axis_size concatenate cumlogsumexp cummax cummin cumprod cumsum dot_general dynamic_slice
    dynamic_update_slice empty gather layout_cast mma mosaic_gpu_reduce_max mosaic_gpu_reduce_min mosaic_gpu_reduce_prod
    mosaic_gpu_reduce_sum multiple_of pad reciprocal reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum
    reduce_xor reshape rev slice sort split squeeze transpose wait_load_tmem
""")
)

#pragma once

#include "syncnorm/tensor_view.hpp"

#include <string_view>

namespace syncnorm::detail {

/// Checks what `normalize` and `backward_input` require of an output that may
/// be the memory of an input, for a caller whose state changes before it calls
/// them: if both start at the same element, their sample strides are equal, and
/// without gaps they overlap in no other way. Neither is read or written.
///
/// @param operation, argument, input  names for the text of the error.
/// @param out, in  the same shape, dtype and format.
/// @throws error `invalid_argument`.
void check_in_place(std::string_view operation, std::string_view argument,
                    const const_tensor_view& out, std::string_view input,
                    const const_tensor_view& in);

} // namespace syncnorm::detail

#pragma once

// How a graph owns its nodes: by std::shared_ptr in older releases of libtorch,
// by c10::intrusive_ptr in newer ones. `Edge` tells which. Either way, where a
// graph alone owns its nodes, libtorch releases it node by node, not by
// recursion, for which a deep graph has no stack.

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace syncnorm::nn::detail {

template <class Pointer, class T>
struct same_kind_of_pointer;

template <template <class...> class Pointer, class... Args, class T>
struct same_kind_of_pointer<Pointer<Args...>, T> {
  using type = Pointer<T>;
};

/// Owns a node of type T as the edges that lead to it do.
template <class T>
using node_ptr =
    typename same_kind_of_pointer<decltype(torch::autograd::Edge::function),
                                  T>::type;

template <class T, class... Args>
node_ptr<T> make_node(Args&&... args) {
  if constexpr (std::is_same_v<node_ptr<T>, std::shared_ptr<T>>)
    // `deleteNode` is libtorch's, found by the argument; newer releases have
    // none.
    return {new T(std::forward<Args>(args)...),
            [](auto* node) { deleteNode(node); }};
  else
    return c10::make_intrusive<T>(std::forward<Args>(args)...);
}

} // namespace syncnorm::nn::detail

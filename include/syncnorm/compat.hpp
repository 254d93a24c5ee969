#pragma once

#include "syncnorm/detail/caf/command_line.hpp"
#include "syncnorm/detail/caf_compat.hpp"

namespace syncnorm {

/// One spelling for what CAF 0.17.6 and CAF 1.x spell differently, for programs
/// that must compile with both, as all examples do. A program for only one of
/// them uses CAF's own names. Call these functions qualified (`compat::send`):
/// argument-dependent lookup finds CAF's own of the same name.
namespace compat {

// CAF's line: 0 or 1. Nodes of different lines do not understand each other.
using detail::caf_line;

// Message types: before the configuration is made, and in its constructor; or
// `CAF_MAIN`.
using detail::add_types;
using detail::init_types;

// A handle by signatures, and `inspect` of a message type.
using detail::field;
using detail::inspect_object;
using detail::typed_actor;

// Messages. A `request` has no timer of CAF's: the master answers by its own
// deadline.
using detail::anon_send;
using detail::delayed_send;
using detail::delegate;
using detail::monitor;
using detail::request;
using detail::request_within;
using detail::send;

// The configuration.
using detail::option_group;
using detail::poll_when_idle;
using detail::printed_help;
using detail::read_command_line;
using detail::set_heartbeats;
using detail::sleep_when_idle;

} // namespace compat

} // namespace syncnorm

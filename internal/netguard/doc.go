// Package netguard decides which network addresses Keygate may connect to on
// behalf of its users (contract, 4.6): where an upstream may be and, with
// another policy, a webhook receiver.
//
// The guard checks the resolved address at every attempt to connect (Guard.Control), so
// it cannot be bypassed by a redirect, or by a name that resolves to another address the
// second time:
//
//	always refused     unspecified, multicast, broadcast, Keygate's own
//	                   listeners; link-local and metadata addresses, unless
//	                   Policy.AllowRisky is set and Policy.Allow contains them
//	Policy.PublicOnly  also everything but public unicast, unless
//	                   Policy.Allow contains it
//
// An IPv6 address that embeds an IPv4 address (mapped, compatible, translated, NAT64,
// 6to4, Teredo) must pass for both.
package netguard

// Package netguard decides which network addresses Keygate may connect to on
// behalf of its users (contract, 4.6): where an upstream may be and, with
// another policy, a webhook receiver.
//
// The decision falls on the address, after DNS, at every attempt to connect
// (Guard.Control), so neither a name that resolves to something else the second
// time nor a redirect can walk around it:
//
//	always refused     unspecified, multicast, broadcast, Keygate's own
//	                   listeners; link-local and metadata, unless
//	                   Policy.AllowRisky is set and Policy.Allow names them
//	Policy.PublicOnly  also whatever is not public unicast, unless
//	                   Policy.Allow names its network
//
// An IPv6 address that carries an IPv4 address (mapped, compatible,
// translated, NAT64, 6to4, Teredo) is judged by what it carries too.
package netguard

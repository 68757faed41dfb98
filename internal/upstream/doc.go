// Package upstream keeps the connections to upstream services (contract, 4.4 and 4.6). The engines
// of package proxy send requests over them.
//
// There are two kinds of pool, and a Pools finds each by Origin, which is everything that a
// connection depends on:
//
//   - An H1Pool holds connections over HTTP/1.1, plain or over TLS. The engine that has one does
//     its own reading and writing.
//   - An H2Pool shares HTTP/2 connections between exchanges: it reads and writes, and calls
//     them with what arrives. It has an H1Pool, which makes its TCP connections and keeps those
//     over which a server of scheme https speaks HTTP/1.1.
//
// Gateways of an account whose upstreams have the same Origin share a pool, so a change of any other
// setting leaves their connections alone. Every attempt to connect resolves the name
// again, unless Origin.Address is set, and asks the netguard.Guard.
//
// # Age
//
// A connection is not used for new requests after Origin.MaxConnAge, so that a name that
// moves to another address is followed. Each connection gets a lifetime.
//
// # Connection limit
//
// If an origin's connections are limited (Origin.MaxConns, Config.MaxConns), each
// connection holds a slot of an H1Pool, so that both versions of HTTP together keep to the limit.
// Requests that find no free slot wait in a FIFO queue. The comments of H1Pool and waitQueue show
// the states of a slot and of a waiter.
package upstream

// Package wire tests the data plane from outside (contract, 4.1 to 4.6): a
// client that is a socket, the real gateway, and an upstream that is a socket.
// What goes over the two sockets is told byte for byte.
//
// A case is a text (testdata/*.txt, see script_test.go) that tells in turn what
// one side sends and what the other receives. Every case runs over plain TCP,
// over TLS, and with the client's bytes sent one by one.
package wire

// Package wire tests the data plane from outside (contract, 4.1 to 4.6), between a
// client and an upstream that are plain sockets. The tests specify what goes over the
// two sockets byte for byte.
//
// A case is a script (testdata/*.txt, see script_test.go) that lists what one side sends
// and what the other receives. Every case runs over plain TCP, over TLS, and with the
// client's bytes sent one by one.
package wire

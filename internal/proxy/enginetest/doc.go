// Package enginetest has the tests that both engines of the data plane must pass, with clients and
// upstreams of every kind: what is forwarded, refused and recorded does not depend on the versions
// of HTTP on both sides.
package enginetest

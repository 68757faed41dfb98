// Package id creates and parses the identifiers of Keygate's records.
//
// An identifier is the prefix of its kind, an underscore, and a UUIDv7 encoded in 26
// characters of lower-case Crockford base 32 (contract, section 2). So identifiers of one
// kind sort by the time of their creation.
package id

import (
	"strings"

	"github.com/google/uuid"
)

// Kind is the prefix of an identifier, which says what kind of record it identifies.
type Kind string

// The kinds of identifiers (contract, section 2).
const (
	Account     Kind = "acct"
	Gateway     Kind = "gw"
	Key         Kind = "key"
	Route       Kind = "rt"
	Webhook     Kind = "wh"
	Delivery    Kind = "dlv"
	Event       Kind = "evt"
	Request     Kind = "req"
	Revision    Kind = "rev"
	Node        Kind = "node"
	Owner       Kind = "own"
	Plan        Kind = "plan"
	Grant       Kind = "grant"
	Canary      Kind = "can"
	Issuer      Kind = "iss"
	User        Kind = "usr"
	Invitation  Kind = "inv"
	Denial      Kind = "den"
	Certificate Kind = "cert"
	UserToken   Kind = "tok"
)

// alphabet is Crockford's base 32 in lower case: no i, l, o, u.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// TextLen is the number of characters after the prefix and the underscore.
const TextLen = 26

// New returns a new identifier of kind k. It panics only if the system's source of
// randomness fails.
func New(k Kind) string {
	return Format(k, uuid.Must(uuid.NewV7()))
}

// Format returns the identifier of kind k that encodes u.
func Format(k Kind, u [16]byte) string {
	var b [8 + 1 + TextLen]byte
	return string(Append(b[:0], k, u))
}

// Append appends the identifier of kind k that encodes u to dst. It allocates only if dst
// lacks room.
func Append(dst []byte, k Kind, u [16]byte) []byte {
	dst = append(dst, k...)
	dst = append(dst, '_')
	// 128 bits, preceded by two zero bits, make 26 groups of 5.
	hi := uint64(u[0])<<56 | uint64(u[1])<<48 | uint64(u[2])<<40 | uint64(u[3])<<32 |
		uint64(u[4])<<24 | uint64(u[5])<<16 | uint64(u[6])<<8 | uint64(u[7])
	lo := uint64(u[8])<<56 | uint64(u[9])<<48 | uint64(u[10])<<40 | uint64(u[11])<<32 |
		uint64(u[12])<<24 | uint64(u[13])<<16 | uint64(u[14])<<8 | uint64(u[15])
	for shift := 125; shift >= 0; shift -= 5 {
		var v uint64
		switch {
		case shift >= 64:
			v = hi >> (shift - 64)
		case shift > 59: // the group straddles the two words
			v = hi<<(64-shift) | lo>>shift
		default:
			v = lo >> shift
		}
		dst = append(dst, alphabet[v&31])
	}
	return dst
}

// Parse returns the 16 bytes that s encodes. ok is false if s is not an identifier of kind
// k.
func Parse(k Kind, s string) (u [16]byte, ok bool) {
	text, found := strings.CutPrefix(s, string(k)+"_")
	if !found || len(text) != TextLen || text[0] > '7' {
		return u, false
	}
	var hi, lo uint64
	for i := range len(text) {
		v := strings.IndexByte(alphabet, text[i])
		if v < 0 {
			return u, false
		}
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(v)
	}
	for i := range 8 {
		u[i] = byte(hi >> (56 - 8*i))
		u[8+i] = byte(lo >> (56 - 8*i))
	}
	return u, true
}

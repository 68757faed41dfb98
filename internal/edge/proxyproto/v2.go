package proxyproto

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// Values of the thirteenth and fourteenth byte: version and command, family and
// transport.
const (
	commandLocal = 0x20
	commandProxy = 0x21

	familyNone  = 0x00
	familyTCP4  = 0x11
	familyUDP4  = 0x12
	familyTCP6  = 0x21
	familyUDP6  = 0x22
	familyUnix  = 0x31
	familyUnixD = 0x32
)

const (
	typeCRC32C = 0x03
	sizeCRC32C = 4
)

// parse2 reads a header of version 2, whose length is right.
func parse2(b []byte) (Header, error) {
	switch b[12] {
	case commandLocal:
		return Header{}, nil // the rest is to be ignored, the family included
	case commandProxy:
	default:
		return Header{}, ErrMalformed
	}
	var h Header
	rest := b[fixed:]
	var size int // of the addresses
	switch b[13] {
	case familyNone:
		// Which addresses follow, if any, is not known, so neither is where the
		// fields begin.
		return Header{}, nil
	case familyTCP4, familyUDP4:
		size = 12
	case familyTCP6, familyUDP6:
		size = 36
	case familyUnix, familyUnixD:
		size = 216
	default:
		return Header{}, ErrMalformed
	}
	if len(rest) < size {
		return Header{}, ErrMalformed
	}
	switch b[13] {
	case familyTCP4:
		h.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(rest[0:4])), binary.BigEndian.Uint16(rest[8:]))
		h.Destination = netip.AddrPortFrom(netip.AddrFrom4([4]byte(rest[4:8])), binary.BigEndian.Uint16(rest[10:]))
	case familyTCP6:
		h.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(rest[0:16])).Unmap(), binary.BigEndian.Uint16(rest[32:]))
		h.Destination = netip.AddrPortFrom(netip.AddrFrom16([16]byte(rest[16:32])).Unmap(), binary.BigEndian.Uint16(rest[34:]))
	}
	// The other families are valid and say nothing about a TCP connection.
	if !fieldsHold(b, fixed+size) {
		return Header{}, ErrMalformed
	}
	return h, nil
}

// fieldsHold checks the fields behind the addresses, each a type, a length and
// a value: they must fill the header, and a checksum among them must be right.
func fieldsHold(b []byte, at int) bool {
	for at < len(b) {
		if len(b)-at < 3 {
			return false
		}
		end := at + 3 + int(binary.BigEndian.Uint16(b[at+1:]))
		if end > len(b) {
			return false
		}
		if b[at] == typeCRC32C && (end-at-3 != sizeCRC32C || binary.BigEndian.Uint32(b[at+3:]) != checksum(b, at+3)) {
			return false
		}
		at = end
	}
	return true
}

// checksum returns the CRC-32C of the header b with zeros in place of the
// checksum that stands at the index at.
func checksum(b []byte, at int) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, b[:at])
	sum = crc32.Update(sum, table, make([]byte, sizeCRC32C))
	return crc32.Update(sum, table, b[at+sizeCRC32C:])
}

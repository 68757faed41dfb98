package proxyproto

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// Values of byte 13 (version and command) and byte 14 (address family and transport).
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
	typeCRC32C = 0x03 // the type of the TLV that holds a checksum
	sizeCRC32C = 4    // bytes
)

// parseV2 parses a version 2 header, whose length has been checked.
func parseV2(b []byte) (Header, error) {
	switch b[12] {
	case commandLocal:
		return Header{}, nil // the specification says to ignore the rest, including the family
	case commandProxy:
	default:
		return Header{}, ErrMalformed
	}
	var h Header
	rest := b[fixedV2:]
	var size int // of the addresses
	switch b[13] {
	case familyNone:
		// The length of the addresses is unknown, so the TLVs cannot be found.
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
	// The other families are valid, but have no TCP addresses.
	if !validTLVs(b, fixedV2+size) {
		return Header{}, ErrMalformed
	}
	return h, nil
}

// validTLVs checks the type-length-value fields (TLVs), which begin at index at, after
// the addresses: they must end exactly where the header ends, and a CRC-32C checksum
// among them must match.
func validTLVs(b []byte, at int) bool {
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

// checksum returns the CRC-32C of the header b, computed with zeros in place of the
// checksum at index at.
func checksum(b []byte, at int) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, b[:at])
	sum = crc32.Update(sum, table, make([]byte, sizeCRC32C))
	return crc32.Update(sum, table, b[at+sizeCRC32C:])
}

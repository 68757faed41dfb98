package proxyproto

import (
	"net/netip"
	"strconv"
	"strings"
)

// parseV1 parses a version 1 header without its CRLF, such as
//
//	PROXY TCP4 192.0.2.1 198.51.100.1 56324 443
func parseV1(line string) (Header, error) {
	if strings.ContainsRune(line, '\r') {
		return Header{}, ErrMalformed
	}
	words := strings.Split(line, " ")
	family := words[1] // the signature ends with a space
	if family == "UNKNOWN" {
		return Header{}, nil // the specification says to ignore the rest
	}
	if len(words) != 6 || family != "TCP4" && family != "TCP6" {
		return Header{}, ErrMalformed
	}
	source, ok1 := endpointV1(family, words[2], words[4])
	destination, ok2 := endpointV1(family, words[3], words[5])
	if !ok1 || !ok2 {
		return Header{}, ErrMalformed
	}
	return Header{source, destination}, nil
}

// endpointV1 parses an address of the family and a decimal port without leading zeros.
func endpointV1(family, host, port string) (netip.AddrPort, bool) {
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Zone() != "" || addr.Is4() != (family == "TCP4") {
		return netip.AddrPort{}, false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || strconv.FormatUint(n, 10) != port {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), true
}

package proxyproto

import (
	"net/netip"
	"strconv"
	"strings"
)

// parse1 reads a header of version 1 without its CRLF:
//
//	PROXY TCP4 192.0.2.1 198.51.100.1 56324 443
func parse1(line string) (Header, error) {
	if strings.ContainsRune(line, '\r') {
		return Header{}, ErrMalformed
	}
	words := strings.Split(line, " ")
	family := words[1] // the signature ends with a space
	if family == "UNKNOWN" {
		return Header{}, nil // and whatever follows is to be ignored
	}
	if len(words) != 6 || family != "TCP4" && family != "TCP6" {
		return Header{}, ErrMalformed
	}
	source, ok1 := endpoint1(family, words[2], words[4])
	destination, ok2 := endpoint1(family, words[3], words[5])
	if !ok1 || !ok2 {
		return Header{}, ErrMalformed
	}
	return Header{source, destination}, nil
}

func endpoint1(family, host, port string) (netip.AddrPort, bool) {
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

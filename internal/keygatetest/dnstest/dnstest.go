// Package dnstest resolves names for tests.
package dnstest

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Resolver returns a resolver that gets the addresses of every name from addrs. Its name
// server is in memory, so no query is lost or late.
func Resolver(addrs func(name string) []netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return &nameConn{addrs: addrs}, nil
	}}
}

// nameConn is a connection to a name server. As over TCP, each message follows its length.
// The response can be read as soon as the query is written.
type nameConn struct {
	addrs   func(name string) []netip.Addr
	in, out bytes.Buffer
}

// Write implements net.Conn.
func (c *nameConn) Write(p []byte) (int, error) {
	c.in.Write(p)
	const prefix = 2
	for c.in.Len() >= prefix {
		n := int(binary.BigEndian.Uint16(c.in.Bytes()))
		if c.in.Len() < prefix+n {
			break
		}
		response, err := respond(c.in.Next(prefix + n)[prefix:], c.addrs)
		if err != nil {
			return 0, err
		}
		c.out.Write(binary.BigEndian.AppendUint16(nil, uint16(len(response))))
		c.out.Write(response)
	}
	return len(p), nil
}

// Read implements net.Conn.
func (c *nameConn) Read(p []byte) (int, error) { return c.out.Read(p) }

// Close implements net.Conn.
func (c *nameConn) Close() error { return nil }

// LocalAddr implements net.Conn.
func (c *nameConn) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements net.Conn.
func (c *nameConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// SetDeadline implements net.Conn.
func (c *nameConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (c *nameConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (c *nameConn) SetWriteDeadline(time.Time) error { return nil }

func respond(query []byte, addrs func(name string) []netip.Addr) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	q := m.Questions[0]
	for _, a := range addrs(strings.TrimSuffix(q.Name.String(), ".")) {
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, Type: q.Type}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case !a.Is4() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return m.Pack()
}

// Package dnstest resolves names for tests.
package dnstest

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Resolver returns a resolver that gets the addresses of every name from addrs. Its name
// server is in memory, so no query is lost or late.
func Resolver(addrs func(name string) []netip.Addr) *net.Resolver {
	return resolverOf(func(q dnsmessage.Question) ([]dnsmessage.Resource, dnsmessage.RCode) {
		return hostRecords(q, addrs(nameOf(q))), dnsmessage.RCodeSuccess
	})
}

// answer returns the records that are asked for.
type answer func(q dnsmessage.Question) ([]dnsmessage.Resource, dnsmessage.RCode)

func resolverOf(a answer) *net.Resolver {
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return &nameConn{answer: a}, nil
	}}
}

// Zone is the names that a name server knows, which may change at any time. Others do not exist. Its zero value has none. It is safe
// for concurrent use.
type Zone struct {
	mu       sync.Mutex
	hosts    map[string][]netip.Addr
	services map[string][]net.SRV
	broken   map[string]bool
	asked    map[string]int
}

// SetHost makes addrs, IP addresses, those of a name. Without any, the name exists.
func (z *Zone) SetHost(name string, addrs ...string) {
	list := []netip.Addr{}
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	put(&z.hosts, name, list)
}

// SetServices makes list the SRV records of a name.
func (z *Zone) SetServices(name string, list ...net.SRV) {
	z.mu.Lock()
	defer z.mu.Unlock()
	put(&z.services, name, list)
}

// Remove makes a name one that does not exist.
func (z *Zone) Remove(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.hosts, name)
	delete(z.services, name)
}

// SetBroken makes queries for a name fail with SERVFAIL, or succeed again.
func (z *Zone) SetBroken(name string, is bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	put(&z.broken, name, is)
}

// Asked returns how many queries for a name there were.
func (z *Zone) Asked(name string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[name]
}

// Resolver returns a resolver that gets everything from the zone.
func (z *Zone) Resolver() *net.Resolver { return resolverOf(z.answer) }

func (z *Zone) answer(q dnsmessage.Question) ([]dnsmessage.Resource, dnsmessage.RCode) {
	name := nameOf(q)
	z.mu.Lock()
	defer z.mu.Unlock()
	put(&z.asked, name, z.asked[name]+1)
	addrs, isHost := z.hosts[name]
	services, isService := z.services[name]
	switch {
	case z.broken[name]:
		return nil, dnsmessage.RCodeServerFailure
	case !isHost && !isService:
		return nil, dnsmessage.RCodeNameError
	case q.Type != dnsmessage.TypeSRV:
		return hostRecords(q, addrs), dnsmessage.RCodeSuccess
	}
	var list []dnsmessage.Resource
	for _, s := range services {
		list = append(list, dnsmessage.Resource{Header: headerOf(q), Body: &dnsmessage.SRVResource{
			Priority: s.Priority, Weight: s.Weight, Port: s.Port, Target: dnsmessage.MustNewName(s.Target),
		}})
	}
	return list, dnsmessage.RCodeSuccess
}

func put[T any](to *map[string]T, name string, value T) {
	if *to == nil {
		*to = map[string]T{}
	}
	(*to)[name] = value
}

func nameOf(q dnsmessage.Question) string { return strings.TrimSuffix(q.Name.String(), ".") }

func headerOf(q dnsmessage.Question) dnsmessage.ResourceHeader {
	return dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, Type: q.Type}
}

// hostRecords returns the addresses of the type that is asked for.
func hostRecords(q dnsmessage.Question, addrs []netip.Addr) (list []dnsmessage.Resource) {
	for _, a := range addrs {
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			list = append(list, dnsmessage.Resource{Header: headerOf(q), Body: &dnsmessage.AResource{A: a.As4()}})
		case !a.Is4() && q.Type == dnsmessage.TypeAAAA:
			list = append(list, dnsmessage.Resource{Header: headerOf(q), Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return list
}

// nameConn is a connection to a name server. As over TCP, each message follows its length.
// The response can be read as soon as the query is written.
type nameConn struct {
	answer  answer
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
		response, err := respond(c.in.Next(prefix + n)[prefix:], c.answer)
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

func respond(query []byte, a answer) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	m.Answers, m.RCode = a(m.Questions[0])
	return m.Pack()
}

// Serve serves the zone over TCP at 127.0.0.1 until the test ends, and returns the address.
func (z *Zone) Serve(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			conns.Go(func() { z.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	return l.Addr().String()
}

// serve responds to the queries of a connection.
func (z *Zone) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	names := &nameConn{answer: z.answer}
	buf := make([]byte, 4096)
	for c.SetDeadline(time.Now().Add(10*time.Second)) == nil {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := names.Write(buf[:n]); err != nil {
			return
		}
		if _, err := names.out.WriteTo(c); err != nil {
			return
		}
	}
}

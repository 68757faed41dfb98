package resolve

import (
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/dnstest"
)

// textOf returns records in one line each.
func textOf(records []Record) (lines []string) {
	for _, r := range records {
		line := fmt.Sprintf("%s %d weight %d", r.Addr, r.Port, r.Weight)
		if r.Backup {
			line += " backup"
		}
		lines = append(lines, line)
	}
	return lines
}

// Guarantee (targets.md, section 5): the A and AAAA records of a name are its addresses, in order. SRV records give each address
// their port, their weight, of which 0 counts as 1, and their priority: those with the lowest come first, and the rest are backups.
// A host of SRV records that does not exist is left out.
func TestRecordsOfNames(t *testing.T) {
	var z dnstest.Zone
	z.SetHost("many.test", "10.0.0.9", "fd00::2", "10.0.0.1", "fd00::1")
	z.SetHost("empty.test")
	z.SetHost("broken.test", "10.0.0.1")
	z.SetBroken("broken.test", true)
	z.SetServices("_http._tcp.test",
		net.SRV{Target: "two.test.", Port: 8002, Priority: 20, Weight: 7},
		net.SRV{Target: "one.test.", Port: 8001, Priority: 10, Weight: 0},
		net.SRV{Target: "one.test.", Port: 8003, Priority: 10, Weight: 3},
		net.SRV{Target: "missing.test.", Port: 8004, Priority: 1, Weight: 1})
	z.SetHost("one.test", "10.0.0.2", "10.0.0.1")
	z.SetHost("two.test", "10.0.0.1", "fd00::1")
	z.SetServices("again.test",
		net.SRV{Target: "one.test.", Port: 80, Priority: 1, Weight: 2},
		net.SRV{Target: "two.test.", Port: 80, Priority: 1, Weight: 5},
		net.SRV{Target: "one.test.", Port: 80, Priority: 2, Weight: 9})
	z.SetServices("none.test", net.SRV{Target: ".", Port: 0})
	z.SetServices("half.test", net.SRV{Target: "one.test.", Port: 80}, net.SRV{Target: "broken.test.", Port: 80})
	z.SetServices("lost.test", net.SRV{Target: "missing.test.", Port: 80})
	by := z.Resolver()
	for _, c := range []struct {
		name Name
		want []string // nil: a failure
	}{
		{Name{Addresses, "many.test"}, []string{"10.0.0.1 0 weight 1", "10.0.0.9 0 weight 1", "fd00::1 0 weight 1", "fd00::2 0 weight 1"}},
		{Name{Addresses, "many.test."}, []string{"10.0.0.1 0 weight 1", "10.0.0.9 0 weight 1", "fd00::1 0 weight 1", "fd00::2 0 weight 1"}},
		{Name{Addresses, "10.1.2.3"}, []string{"10.1.2.3 0 weight 1"}},
		{Name{Addresses, "::ffff:10.1.2.3"}, []string{"10.1.2.3 0 weight 1"}},
		{Name{Addresses, "empty.test"}, nil},
		{Name{Addresses, "broken.test"}, nil},
		{Name{Addresses, "missing.test"}, nil},
		{Name{Services, "_http._tcp.test"}, []string{
			"10.0.0.1 8001 weight 1", "10.0.0.1 8003 weight 3", "10.0.0.2 8001 weight 1", "10.0.0.2 8003 weight 3",
			"10.0.0.1 8002 weight 7 backup", "fd00::1 8002 weight 7 backup",
		}},
		{Name{Services, "again.test"}, []string{"10.0.0.1 80 weight 7", "10.0.0.2 80 weight 2", "fd00::1 80 weight 5"}},
		{Name{Services, "none.test"}, nil},
		{Name{Services, "half.test"}, nil},
		{Name{Services, "lost.test"}, nil},
		{Name{Services, "many.test"}, nil},
		{Name{Services, "missing.test"}, nil},
	} {
		records, _, err := lookUp(t.Context(), by, c.name)
		if got := textOf(records); (err == nil) != (c.want != nil) || err == nil && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: got %q, error %v; want %q", c.name, got, err, c.want)
		}
	}
}

// Guarantee (section 5): of 300 addresses, the first 256 are kept. Of SRV records, those with the lowest priority come first.
func TestFirst256Addresses(t *testing.T) {
	var z dnstest.Zone
	var addrs []string
	var services []net.SRV
	for i := range 300 {
		addrs = append(addrs, fmt.Sprintf("10.0.%d.%d", i/256, i%256))
		services = append(services, net.SRV{Target: "one.test.", Port: uint16(1000 + i), Priority: uint16(300 - i)})
	}
	z.SetHost("many.test", addrs...)
	z.SetHost("one.test", "10.0.0.1")
	z.SetServices("services.test", services...)
	records, _, err := lookUp(t.Context(), z.Resolver(), Name{Addresses, "many.test"})
	if err != nil || len(records) != MaxRecords || records[255].Addr != netip.MustParseAddr("10.0.0.255") {
		t.Errorf("got %d addresses, error %v: %s; want %d", len(records), err, strings.Join(textOf(records), ", "), MaxRecords)
	}
	records, _, err = lookUp(t.Context(), z.Resolver(), Name{Services, "services.test"})
	if err != nil || len(records) != MaxRecords || records[0].Port != 1299 || records[0].Backup || !records[1].Backup || records[1].Port != 1044 {
		t.Errorf("got %d addresses, error %v: %s; want %d, the first with port 1299", len(records), err, strings.Join(textOf(records), ", "), MaxRecords)
	}
}

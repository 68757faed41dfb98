package resolve

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"slices"
)

// MaxRecords is how many addresses of a name are kept: the first, in order.
const MaxRecords = 256

// Kind says which records of a name are looked up.
type Kind uint8

const (
	// Addresses are the A and AAAA records.
	Addresses Kind = iota
	// Services are the SRV records, with the addresses of the hosts that they name.
	Services
)

// Name is a name with the kind of its records.
type Name struct {
	Kind Kind
	Host string
}

// Record is an address of a name.
type Record struct {
	Addr   netip.Addr
	Port   uint16 // 0 for Addresses
	Weight int    // at least 1
	Backup bool   // of a record whose priority is not the lowest number
}

// Found is what is known of a name. It is immutable.
type Found struct {
	// Records has no duplicates. Those that are no backups come first, by address and port. It is empty until a look-up has
	// succeeded.
	Records []Record
	// Degraded is set if Records may be old, because the last look-up has failed, or does not have all addresses, because of
	// the bounds of the account or the node.
	Degraded bool
}

// Lookup is what looks names up: a *net.Resolver.
type Lookup interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (cname string, records []*net.SRV, err error)
}

var errEmpty = errors.New("the name has no address")

// lookUp looks a name up, and returns how many names it had to look up for that. Without an address the result is an error.
func lookUp(ctx context.Context, by Lookup, n Name) (records []Record, queries int, err error) {
	if n.Kind == Services {
		records, queries, err = lookUpServices(ctx, by, n.Host)
	} else {
		queries = 1
		records, err = lookUpAddresses(ctx, by, n.Host)
	}
	if err == nil && len(records) == 0 {
		err = errEmpty
	}
	return records, queries, err
}

func lookUpAddresses(ctx context.Context, by Lookup, host string) ([]Record, error) {
	found, err := by.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	records := make([]Record, len(found))
	for i, a := range found {
		records[i] = Record{Addr: a.Unmap(), Weight: 1}
	}
	return sorted(records), nil
}

// lookUpServices looks up the SRV records of a name and the hosts in them. A host that does not exist is left out. If any other
// look-up fails, all fails, so that what was found before stays whole.
func lookUpServices(ctx context.Context, by Lookup, name string) (records []Record, queries int, err error) {
	queries = 1
	_, services, err := by.LookupSRV(ctx, "", "", name)
	if err != nil && len(services) == 0 { // of several records, the resolver leaves out those that are malformed
		return nil, queries, err
	}
	slices.SortFunc(services, func(a, b *net.SRV) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Weight, b.Weight))
	})
	services = slices.DeleteFunc(services, func(s *net.SRV) bool { return s.Target == "." || s.Target == "" }) // no service
	services = services[:min(len(services), MaxRecords)]
	hosts := map[string][]netip.Addr{}
	lowest := uint16(math.MaxUint16)
	for _, s := range services {
		found, known := hosts[s.Target]
		if !known {
			queries++
			var missing *net.DNSError
			if found, err = by.LookupNetIP(ctx, "ip", s.Target); err != nil && (!errors.As(err, &missing) || !missing.IsNotFound) {
				return nil, queries, err
			}
			slices.SortFunc(found, netip.Addr.Compare)
			found = found[:min(len(found), MaxRecords)]
			hosts[s.Target] = found
		}
		if len(found) > 0 {
			lowest = min(lowest, s.Priority)
		}
		for _, a := range found {
			records = append(records, Record{Addr: a.Unmap(), Port: s.Port, Weight: max(1, int(s.Weight)), Backup: s.Priority > lowest})
		}
	}
	return sorted(records), queries, nil
}

// sorted puts records in order and leaves out duplicates, and what is beyond MaxRecords. Records of one address and port are
// one with the sum of their weights; a backup beside one that is none does not count.
func sorted(records []Record) []Record {
	slices.SortStableFunc(records, func(a, b Record) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), compareBool(a.Backup, b.Backup))
	})
	merged := records[:0]
	for _, r := range records {
		last := len(merged) - 1
		switch {
		case last < 0 || merged[last].Addr != r.Addr || merged[last].Port != r.Port:
			merged = append(merged, r)
		case r.Port != 0 && merged[last].Backup == r.Backup:
			merged[last].Weight = min(merged[last].Weight+r.Weight, math.MaxUint16)
		}
	}
	slices.SortStableFunc(merged, func(a, b Record) int { return compareBool(a.Backup, b.Backup) })
	return slices.Clip(merged[:min(len(merged), MaxRecords)])
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

package apply

import (
	"slices"
	"strings"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/fault"
)

// order puts differences into an order in which they can be applied: a file that gives a hostname
// up comes before the file that takes it, and the file that moves the default gateway comes last,
// because that changes another gateway too. Otherwise the order is kept. It is an error if a file
// takes a hostname that stays with another gateway in all.
func order(differences []*Difference, all []client.Gateway) ([]*Difference, error) {
	owners := map[string]*client.Gateway{} // of hostnames
	byID := map[string]*client.Gateway{}
	for i := range all {
		owners[strings.ToLower(all[i].Hostname)], byID[all[i].GatewayID] = &all[i], &all[i]
	}
	of := map[string]*Difference{} // by the identifiers of gateways
	for _, d := range differences {
		of[d.GatewayID] = d
	}
	e := &Errors{Files: len(differences)}
	s := &sorter{before: map[*Difference]*Difference{}, state: map[*Difference]int{}}
	for _, d := range differences {
		hostname := d.hostname()
		owner := owners[hostname]
		if hostname == "" || owner == nil || owner.GatewayID == d.GatewayID {
			continue
		}
		from := of[owner.GatewayID]
		if from == nil || !from.file.config.Gateway.Hostname.Present || from.hostname() == hostname {
			e.add(d.file, d.file.at("gateway", "hostname").Invalid("gateway.hostname", "%s is that of %s", hostname, label(owner.Name, owner.GatewayID)))
			continue
		}
		s.before[d] = from
	}
	if err := e.err(); err != nil {
		return nil, err
	}
	for _, d := range differences {
		if err := s.add(d); err != nil {
			return nil, err
		}
	}
	last := slices.IndexFunc(s.sorted, func(d *Difference) bool {
		g := byID[d.GatewayID]
		return d.file.config.Gateway.Default.Value && g != nil && !g.Default
	})
	if last >= 0 && !s.givesUp(s.sorted[last]) {
		d := s.sorted[last]
		s.sorted = append(slices.Delete(s.sorted, last, last+1), d)
	}
	return s.sorted, nil
}

// hostname returns the hostname that the file gives its gateway, in lower case, or "".
func (d *Difference) hostname() string {
	if h := d.file.config.Gateway.Hostname; h.Present && !h.Null {
		return strings.ToLower(h.Value)
	}
	return ""
}

// sorter sorts files so that each comes after its entry in before.
type sorter struct {
	before map[*Difference]*Difference
	state  map[*Difference]int // 1 while the files before it are added, 2 once it is added
	sorted []*Difference
}

// givesUp reports whether another file takes the hostname of d.
func (s *sorter) givesUp(d *Difference) bool {
	for _, from := range s.before {
		if from == d {
			return true
		}
	}
	return false
}

// add adds d and the files that come before it.
func (s *sorter) add(d *Difference) error {
	switch s.state[d] {
	case 1:
		return fault.New(fault.Conflict, "%s: gateways exchange the hostname %s with others: apply another hostname in between", d.File, d.hostname())
	case 2:
		return nil
	}
	s.state[d] = 1
	if from := s.before[d]; from != nil {
		if err := s.add(from); err != nil {
			return err
		}
	}
	s.state[d] = 2
	s.sorted = append(s.sorted, d)
	return nil
}

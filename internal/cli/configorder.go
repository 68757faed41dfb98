package cli

import (
	"slices"
	"strings"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/fault"
)

// order puts the files of the plan into an order in which they can be applied: a file that gives a
// hostname up comes before the one that takes it, and the file that moves the default gateway
// comes last, because that changes another gateway too. Otherwise the order of names is kept. A
// hostname that stays with another gateway of all is an error.
func (o *configRun) order(all []client.Gateway) error {
	owners := map[string]*client.Gateway{} // of hostnames
	byID := map[string]*client.Gateway{}
	for i := range all {
		owners[strings.ToLower(all[i].Hostname)], byID[all[i].GatewayID] = &all[i], &all[i]
	}
	plans := map[string]*planned{} // by the identifiers of gateways
	for _, p := range o.plan {
		plans[p.GatewayID] = p
	}
	f := &failures{app: o.app, files: len(o.plan)}
	s := &sorter{before: map[*planned]*planned{}, state: map[*planned]int{}}
	for _, p := range o.plan {
		hostname := p.hostname()
		owner := owners[hostname]
		if hostname == "" || owner == nil || owner.GatewayID == p.GatewayID {
			continue
		}
		from := plans[owner.GatewayID]
		if from == nil || !from.file.config.Gateway.Hostname.Present || from.hostname() == hostname {
			f.add(p.file.documentFile, p.file.at("gateway", "hostname").Invalid("gateway.hostname", "%s is that of %s", hostname, gatewayLabel(owner)))
			continue
		}
		s.before[p] = from
	}
	if err := f.err(); err != nil {
		return err
	}
	for _, p := range o.plan {
		if err := s.add(p); err != nil {
			return err
		}
	}
	last := slices.IndexFunc(s.sorted, func(p *planned) bool {
		g := byID[p.GatewayID]
		return p.file.config.Gateway.Default.Value && g != nil && !g.Default
	})
	if last >= 0 && !s.givesUp(s.sorted[last]) {
		p := s.sorted[last]
		s.sorted = append(slices.Delete(s.sorted, last, last+1), p)
	}
	o.plan = s.sorted
	return nil
}

// hostname returns the hostname that the file gives its gateway, in lower case, or "".
func (p *planned) hostname() string {
	if h := p.file.config.Gateway.Hostname; h.Present && !h.Null {
		return strings.ToLower(h.Value)
	}
	return ""
}

// sorter sorts files so that each comes after the one that before has for it.
type sorter struct {
	before map[*planned]*planned
	state  map[*planned]int // 1 while the files before it are added, 2 once it is added
	sorted []*planned
}

// givesUp reports whether another file takes the hostname of p.
func (s *sorter) givesUp(p *planned) bool {
	for _, from := range s.before {
		if from == p {
			return true
		}
	}
	return false
}

// add adds p and what comes before it.
func (s *sorter) add(p *planned) error {
	switch s.state[p] {
	case 1:
		return fault.New(fault.Conflict, "%s: gateways exchange the hostname %s with others: apply another hostname in between", p.File, p.hostname())
	case 2:
		return nil
	}
	s.state[p] = 1
	if from := s.before[p]; from != nil {
		if err := s.add(from); err != nil {
			return err
		}
	}
	s.state[p] = 2
	s.sorted = append(s.sorted, p)
	return nil
}

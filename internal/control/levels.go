package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/clientip"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// LimitLevel is the current level of one limit of a gateway.
type LimitLevel struct {
	RouteID string // "" unless it is the limit of a route
	KeyID   string // "" unless it is the limit of a key
	OwnerID string // "" unless it is the limit of an owner
	Address string // "" unless it is the limit of an address; see clientip.Group
	address clientip.Group
	ratelimit.Status
}

// Cursor identifies the limit in the list of its gateway's limits, for Page.After. It does not change
// while the limit exists.
func (l *LimitLevel) Cursor() string {
	cursor := strconv.Itoa(int(l.Scope)) + " " + l.RouteID + " " + l.KeyID
	switch {
	case l.Label != nil:
		cursor += " " + l.OwnerID + " " + l.Label.String()
	case l.Address != "":
		cursor += "  " + hex.EncodeToString(l.address[:])
	}
	return cursor
}

// Limits lists the limits of a gateway: the global one, then the limits of routes, of keys that
// are in use, and of plans, for each owner or key that uses them, and of addresses on public routes; the newest routes, keys
// and owners first. Page.After is the LimitLevel.Cursor of the last limit
// of the previous page.
func (s *Service) Limits(ctx context.Context, actor *Actor, gatewayID string, p Page) ([]LimitLevel, error) {
	if _, err := s.Gateway(ctx, actor, gatewayID); err != nil {
		return nil, err
	}
	if s.cfg.Sources.Levels == nil {
		return nil, fault.New(fault.Unavailable, "this process has no data plane: send the call to the server")
	}
	levels := page{limit: max(p.Limit, 1)}
	if p.After != "" {
		after := parseCursor(p.After)
		levels.after = &after
	}
	s.cfg.Sources.Levels.Levels(ctx, gatewayID, levels.add)
	list := make([]LimitLevel, 0, p.Limit)
	for _, l := range levels.sorted() {
		level := LimitLevel{RouteID: identifier(id.Route, l.Route), KeyID: identifier(id.Key, l.Key), OwnerID: identifier(id.Owner, l.Owner), address: l.Address, Status: l.Status}
		if l.Address != (clientip.Group{}) {
			level.Address = l.Address.String()
		}
		list = append(list, level)
	}
	return list, nil
}

// page collects the first levels of a list that follow a given one.
type page struct {
	limit int
	after *ratelimit.Level
	list  []ratelimit.Level
}

func (p *page) add(l ratelimit.Level) {
	if p.after != nil && compareLevels(&l, p.after) <= 0 {
		return
	}
	if p.list = append(p.list, l); len(p.list) >= 4*p.limit {
		p.list = p.sorted()
	}
}

func (p *page) sorted() []ratelimit.Level {
	slices.SortFunc(p.list, func(a, b ratelimit.Level) int { return compareLevels(&a, &b) })
	return p.list[:min(len(p.list), p.limit)]
}

// compareLevels defines the order of the list of a gateway's limits.
func compareLevels(a, b *ratelimit.Level) int {
	return cmp.Or(cmp.Compare(a.Scope.Rank(), b.Scope.Rank()), bytes.Compare(b.Route[:], a.Route[:]), bytes.Compare(b.Key[:], a.Key[:]),
		bytes.Compare(b.Owner[:], a.Owner[:]), cmp.Compare(a.Label.String(), b.Label.String()), bytes.Compare(a.Address[:], b.Address[:]))
}

// parseCursor parses a result of LimitLevel.Cursor.
func parseCursor(cursor string) (l ratelimit.Level) {
	scope, rest, _ := strings.Cut(cursor, " ")
	route, rest, _ := strings.Cut(rest, " ")
	key, rest, _ := strings.Cut(rest, " ")
	owner, last, _ := strings.Cut(rest, " ")
	n, _ := strconv.ParseUint(scope, 10, 8)
	l.Scope = ratelimit.Scope(n)
	l.Route, _ = id.Parse(id.Route, route)
	l.Key, _ = id.Parse(id.Key, key)
	l.Owner, _ = id.Parse(id.Owner, owner)
	if plan, limit, ok := strings.Cut(last, "."); ok {
		l.Label = ratelimit.NewLabel(plan, limit, ratelimit.Requests) // compared by its name
	} else if b, err := hex.DecodeString(last); err == nil && len(b) == len(l.Address) {
		l.Address = clientip.Group(b)
	}
	return l
}

func identifier(k id.Kind, u [16]byte) string {
	if u == ([16]byte{}) {
		return ""
	}
	return id.Format(k, u)
}

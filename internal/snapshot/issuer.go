package snapshot

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/issuer"
	"github.com/keygate/keygate/internal/token"
)

// issuerTable is the issuers in force. It is immutable, unless it is a draft.
type issuerTable struct {
	byID      map[string]*knownIssuer
	byAccount map[string]map[string]*knownIssuer // by account and name
	isDraft   bool                               // with changes it
}

// draft returns a copy that with changes, for as long as isDraft is set: to read all issuers would otherwise take as many copies of the
// table.
func (t *issuerTable) draft() *issuerTable {
	d := &issuerTable{byID: map[string]*knownIssuer{}, byAccount: map[string]map[string]*knownIssuer{}, isDraft: true}
	if t != nil {
		maps.Copy(d.byID, t.byID)
		for accountID, of := range t.byAccount {
			d.byAccount[accountID] = maps.Clone(of)
		}
	}
	return d
}

// knownIssuer is an issuer in force.
type knownIssuer struct {
	record  issuer.Issuer
	token   *token.Issuer   // nil if the record cannot be used: gateways that name the issuer are then out of service
	denials *issuer.Denials // the same for all states of the issuer
	unread  bool            // not all denials are in denials
}

func (k *knownIssuer) headers() map[string]string { return k.record.ClaimHeaders }

// named returns an issuer of the account, or nil.
func (t *issuerTable) named(accountID, name string) *knownIssuer {
	if t == nil {
		return nil
	}
	return t.byAccount[accountID][name]
}

// with returns a table with the issuer k, or without that of the identifier if k is nil.
func (t *issuerTable) with(issuerID string, k *knownIssuer) *issuerTable {
	next, ownCopy := t, func(of map[string]*knownIssuer) map[string]*knownIssuer { return of }
	if t == nil || !t.isDraft {
		next, ownCopy = &issuerTable{byID: map[string]*knownIssuer{}, byAccount: map[string]map[string]*knownIssuer{}}, maps.Clone[map[string]*knownIssuer]
	}
	if t != nil && !t.isDraft {
		next.byID, next.byAccount = maps.Clone(t.byID), maps.Clone(t.byAccount)
	}
	if was := next.byID[issuerID]; was != nil {
		delete(next.byID, issuerID)
		rest := ownCopy(next.byAccount[was.record.AccountID])
		if delete(rest, was.record.Name); len(rest) > 0 {
			next.byAccount[was.record.AccountID] = rest
		} else {
			delete(next.byAccount, was.record.AccountID)
		}
	}
	if k != nil {
		next.byID[issuerID] = k
		of := ownCopy(next.byAccount[k.record.AccountID])
		if of == nil {
			of = map[string]*knownIssuer{}
		}
		of[k.record.Name] = k
		next.byAccount[k.record.AccountID] = of
	}
	return next
}

// compileIssuer returns the issuer of a record. One that says the same as was, which may be nil, is was, so that the tokens
// that were verified for it stay remembered. The caller holds writing.
func (f *Follower) compileIssuer(record *issuer.Issuer, was *knownIssuer) *knownIssuer {
	keys, err := record.Keys()
	if err == nil && was != nil && was.token != nil && was.record.Name == record.Name && reflect.DeepEqual(was.record.Settings, record.Settings) {
		if before, err := was.record.Keys(); err == nil && reflect.DeepEqual(before, keys) {
			return was
		}
	}
	k := &knownIssuer{record: *record, denials: was.denialsOf()}
	if err == nil {
		f.issuerStates++
		k.token, err = token.NewIssuer(record, keys, k.denials, f.issuerStates)
		if record.Claims.Owner != "" {
			f.nameOwners(record.AccountID)
		}
	}
	if err != nil {
		f.cfg.Log.Error("an issuer cannot be used, and the gateways that name it are out of service", "issuer_id", record.ID, "error", err)
	}
	return k
}

// denialsOf returns the denials of an issuer, which may be nil for one that is not known yet.
func (k *knownIssuer) denialsOf() *issuer.Denials {
	if k == nil {
		return &issuer.Denials{}
	}
	return k.denials
}

// known returns the issuer with the identifier, or nil.
func (t *issuerTable) known(issuerID string) *knownIssuer {
	if t == nil {
		return nil
	}
	return t.byID[issuerID]
}

// putIssuer puts an issuer in force in t, and returns the new table. Its denials are read if they were not, or if all is
// true. An issuer whose denials cannot be read is refused, as one that cannot be read itself.
func (f *Follower) putIssuer(ctx context.Context, t *issuerTable, record *issuer.Issuer, all bool) (*issuerTable, error) {
	was := t.known(record.ID)
	k := f.compileIssuer(record, was)
	if all || was == nil || was.unread {
		if err := f.readDenials(ctx, k, record.Denials); f.isUnreadable(err) {
			t = t.with(record.ID, &knownIssuer{record: *record, denials: k.denials, unread: true})
			return f.refuseIssuer(t, record.ID, err), nil
		} else if err != nil {
			return t, err
		}
	}
	f.unreadableIssuers.remove(record.ID)
	if k != was {
		return t.with(record.ID, k), nil
	}
	return t, nil
}

// readDenials makes the denials of an issuer those of the source, which has counted n.
func (f *Follower) readDenials(ctx context.Context, k *knownIssuer, n int64) error {
	if n == 0 && k.denials.Len() == 0 {
		return nil
	}
	var all []issuer.Denial
	err := f.cfg.Source.EachDenial(ctx, k.record.ID, func(d *issuer.Denial) error {
		all = append(all, *d)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the denials of issuer %s: %w", k.record.ID, err)
	}
	k.denials.Replace(all)
	return nil
}

// DenialChangeID returns the ID of a DenialChange.
func DenialChangeID(issuerID, denialID string) string { return issuerID + "/" + denialID }

// readDenial puts in force the denial that a DenialChange names, as the source has it: streams are looked at again, and so
// are tokens that are remembered. An issuer that is not known yet, or whose denials are not, is read as a whole. The caller
// holds writing.
func (f *Follower) readDenial(ctx context.Context, changeID string) error {
	issuerID, denialID, _ := strings.Cut(changeID, "/")
	k := f.issuers.Load().known(issuerID)
	if k == nil || k.unread {
		return nil
	}
	d, err := f.cfg.Source.DenialByID(ctx, denialID)
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		k.denials.Remove(denialID)
	case f.isUnreadable(err):
		t := f.issuers.Load()
		f.issuers.Store(f.refuseIssuer(t.with(issuerID, &knownIssuer{record: k.record, denials: k.denials, unread: true}), issuerID, err))
		f.publish(nil, nil)
		return nil
	case err != nil:
		return fmt.Errorf("read denial %s: %w", denialID, err)
	default:
		k.denials.Put(*d)
	}
	f.published.Add(1) // after the change of the denials
	return nil
}

// trimDenials forgets denials that have ended for so long that the store removes them.
func (f *Follower) trimDenials() {
	t := f.issuers.Load()
	if f.cfg.Retention == nil || t == nil {
		return
	}
	ended := f.cfg.Retention().Add(-issuer.MaxLeeway)
	for _, k := range t.byID {
		k.denials.Trim(ended)
	}
}

// refuseIssuer makes the gateways that name an issuer whose record cannot be read be out of service: what its tokens must
// have is not known, nor which headers are its own. A node that has never read the issuer does not know its name: then
// gateways that name an unknown issuer are out of service anyway.
func (f *Follower) refuseIssuer(t *issuerTable, issuerID string, err error) *issuerTable {
	if !f.unreadableIssuers.add(issuerID) {
		return t
	}
	f.cfg.Log.Error("an issuer cannot be read, and the gateways that name it are out of service", "issuer_id", issuerID, "error", err)
	if t == nil || t.byID[issuerID] == nil {
		return t
	}
	was := t.byID[issuerID]
	return t.with(issuerID, &knownIssuer{record: was.record, denials: was.denials, unread: was.unread})
}

// readIssuer puts in force what the source has under the identifier. The caller holds writing.
func (f *Follower) readIssuer(ctx context.Context, issuerID string) error {
	i, err := f.cfg.Source.IssuerByID(ctx, issuerID)
	t := f.issuers.Load()
	switch {
	case fault.CodeOf(err) == fault.NotFound:
		f.unreadableIssuers.remove(issuerID)
		t = t.with(issuerID, nil)
	case f.isUnreadable(err):
		t = f.refuseIssuer(t, issuerID, err)
	case err != nil:
		return fmt.Errorf("read issuer %s: %w", issuerID, err)
	default:
		if t, err = f.putIssuer(ctx, t, i, false); err != nil {
			return err
		}
	}
	if t != f.issuers.Swap(t) {
		f.publish(nil, nil)
	}
	return nil
}

// loadIssuers brings the issuers up to date with the source. It leaves out the issuers of other accounts. The caller
// publishes.
func (f *Follower) loadIssuers(ctx context.Context, accounts map[string]*account.Account) error {
	t := f.issuers.Load().draft()
	seen, found := map[string]bool{}, map[string]issuer.Issuer{}
	put := func(i *issuer.Issuer) error {
		if accounts[i.AccountID] != nil {
			seen[i.ID], found[i.ID] = true, *i
		}
		return nil
	}
	var err error
	if f.cfg.Shared == nil {
		err = f.cfg.Source.EachIssuer(ctx, put)
	} else {
		err = f.cfg.Shared.Log.EachReadableIssuer(ctx, put, func(issuerID string, err error) {
			seen[issuerID] = true
			t = f.refuseIssuer(t, issuerID, err)
		})
	}
	if err != nil {
		return fmt.Errorf("load issuers: %w", err)
	}
	for _, i := range found {
		if t, err = f.putIssuer(ctx, t, &i, true); err != nil {
			return fmt.Errorf("load issuers: %w", err)
		}
	}
	for issuerID := range t.byID {
		if !seen[issuerID] {
			t = t.with(issuerID, nil)
		}
	}
	t.isDraft = false
	f.issuers.Store(t)
	return nil
}

// UnusableIssuers returns how many issuers this node cannot read at present. Gateways that name them are out of service.
func (f *Follower) UnusableIssuers() int { return int(f.unreadableIssuers.n.Load()) }

// IssuerByID returns the issuer as tokens are checked against it, or nil. It is for package token's memory.
func (f *Follower) IssuerByID(issuerID string) *token.Issuer {
	if t := f.issuers.Load(); t != nil && t.byID[issuerID] != nil {
		return t.byID[issuerID].token
	}
	return nil
}

// Issuers returns the issuers whose tokens the gateway takes.
func (g *Gateway) Issuers() []*token.Issuer { return g.issuers }

// IssuerByID returns the issuer if the gateway, which may be nil, takes its tokens; otherwise nil.
func (g *Gateway) IssuerByID(issuerID string) *token.Issuer {
	if g != nil {
		for _, i := range g.issuers {
			if i.ID() == issuerID {
				return i
			}
		}
	}
	return nil
}

// withIssuers returns the gateway with the issuers that it names as t has them: g itself if nothing changes. If one cannot
// be used, the gateway is out of service: it must not pass on a header that only the issuer's tokens may set.
func (g *Gateway) withIssuers(t *issuerTable) *Gateway {
	if len(g.issuerNames) == 0 {
		return g
	}
	issuers := make([]*token.Issuer, 0, len(g.issuerNames))
	var headers []string
	lacks := false
	for _, name := range g.issuerNames {
		k := t.named(g.AccountID, name)
		if k == nil || k.token == nil {
			lacks = true
			continue
		}
		issuers = append(issuers, k.token)
		headers = slices.AppendSeq(headers, maps.Keys(k.headers()))
	}
	slices.Sort(headers)
	if headers = slices.Compact(headers); lacks == g.LacksIssuer && slices.Equal(issuers, g.issuers) && (g.Settings == nil || slices.Equal(headers, g.ClaimHeaders)) {
		return g
	}
	other := *g
	other.issuers, other.LacksIssuer = issuers, lacks
	if !slices.Equal(headers, g.ClaimHeaders) {
		other.Settings = g.withClaimHeaders(headers)
	}
	return &other
}

// withClaimHeaders returns settings that withhold the headers from every request, since only tokens set them.
func (s *Settings) withClaimHeaders(headers []string) *Settings {
	was := len(s.ClaimHeaders)
	keys := slices.Concat(headers, s.Withheld[was:])
	other := s.withTargets(func(t *Target) {
		t.Withheld = slices.Concat(headers, t.Withheld[was:])
		t.Keys = keys
	})
	other.Withheld, other.ClaimHeaders = keys, headers
	return other
}

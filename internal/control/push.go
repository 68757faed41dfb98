package control

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/snapshot"
)

// PushSpec replaces the gateway's whole route table by the operations of an OpenAPI document, as one
// revision. With dryRun, it only returns what would change.
func (s *Service) PushSpec(ctx context.Context, actor *Actor, gatewayID string, content []byte, dryRun bool, m Match) (*PushResult, error) {
	return s.pushDocument(ctx, actor, gatewayID, len(content), func() (*document, error) { return s.readSpec(ctx, actor, content) }, dryRun, m)
}

// PushConfiguration does the same as PushSpec with a configuration file, which may also change
// settings of the gateway.
func (s *Service) PushConfiguration(ctx context.Context, actor *Actor, gatewayID string, content []byte, dryRun bool, m Match) (*PushResult, error) {
	return s.pushDocument(ctx, actor, gatewayID, len(content), func() (*document, error) { return s.readConfiguration(ctx, actor, content) }, dryRun, m)
}

// Rollback creates a new revision with the content, routes and limits of the revision with the
// given number. With dryRun, it only returns what would change.
func (s *Service) Rollback(ctx context.Context, actor *Actor, gatewayID string, number int64, dryRun bool, m Match) (*PushResult, error) {
	rev, err := s.Revision(ctx, actor, gatewayID, number)
	if err != nil {
		return nil, err
	}
	return s.pushDocument(ctx, actor, gatewayID, len(rev.Content), func() (*document, error) { return readRevision(rev) }, dryRun, m)
}

// pushDocument pushes the document that read returns, which has the given number of bytes.
func (s *Service) pushDocument(ctx context.Context, actor *Actor, gatewayID string, size int, read func() (*document, error), dryRun bool, m Match) (*PushResult, error) {
	release, err := s.heavy(ctx, size)
	if err != nil {
		return nil, err
	}
	doc, err := read()
	release()
	if err != nil {
		return nil, err
	}
	return s.push(ctx, actor, gatewayID, doc, dryRun, m)
}

// heavyContent is the size of a document, in bytes, from which on its push takes a slot of Config.Heavy.
const heavyContent = 64 << 10

// heavy waits for a slot for work on a document with the given number of bytes, so that large
// documents leave processors to other calls. The caller must call release.
func (s *Service) heavy(ctx context.Context, size int) (release func(), err error) {
	if size < heavyContent {
		return func() {}, nil
	}
	select {
	case s.cfg.Heavy <- struct{}{}:
		return sync.OnceFunc(func() { <-s.cfg.Heavy }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pushAttempts is how often a push is prepared. It is prepared again only if another process changes
// the gateway meanwhile.
const pushAttempts = 3

// push pushes doc. It compares the tables and encodes the new one before its transaction, because
// every other change waits for that.
func (s *Service) push(ctx context.Context, actor *Actor, gatewayID string, doc *document, dryRun bool, m Match) (*PushResult, error) {
	if onlyChecks(ctx) {
		return nil, errOnlyChecked
	}
	if dryRun {
		p, err := s.preparePush(ctx, actor, gatewayID, doc, m, false)
		if err != nil {
			return nil, err
		}
		warning, err := s.enforceWarning(ctx, p)
		if err != nil {
			return nil, err
		}
		if warning != "" {
			p.warnings = append(p.warnings, warning)
		}
		r := p.result(true)
		r.push = p
		return r, nil
	}
	unlock, err := s.lockTable(ctx, actor, gatewayID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for attempt := 1; ; attempt++ {
		p, err := s.preparePush(ctx, actor, gatewayID, doc, m, true)
		if err != nil {
			return nil, err
		}
		ctx, drop, err := s.encodedBefore(ctx, actor, p.result(false))
		if err != nil {
			s.discard(ctx, p)
			return nil, err
		}
		result, err := s.applyPush(ctx, actor, p)
		if err != nil {
			drop(err)
		}
		if !errors.Is(err, errChangedMeanwhile) || attempt == pushAttempts {
			return result, err
		}
	}
}

// errChangedMeanwhile is the error of a transaction whose gateway was changed after the push was prepared.
var errChangedMeanwhile = fault.New(fault.Conflict, "the gateway was changed while the push was prepared, and nothing of the push is stored: push again")

// preparePush finds out what a push changes and, if store is set and there is something to change, has the store encode
// the new table.
func (s *Service) preparePush(ctx context.Context, actor *Actor, gatewayID string, doc *document, m Match, store bool) (*pushChange, error) {
	release, err := s.heavy(ctx, len(doc.content))
	if err != nil {
		return nil, err
	}
	defer release()
	p, err := read(ctx, s, actor, func(tx ReadTx) (*pushChange, error) { return s.changeOfPush(ctx, tx, actor, gatewayID, doc, m) })
	if err != nil || !store {
		return p, err
	}
	if p.current = nil; p.idle {
		return p, nil
	}
	p.prepared, err = s.cfg.Store.Prepare(ctx, p.revision())
	return p, err
}

// applyPush runs the transaction of p.
func (s *Service) applyPush(ctx context.Context, actor *Actor, p *pushChange) (*PushResult, error) {
	result, err := inTx(ctx, s, actor, func(w *work) (*PushResult, error) {
		if p.doc.within != nil {
			if err := p.doc.within(ctx, w); err != nil {
				return nil, err
			}
		}
		if p.doc.rollback {
			if err := w.pauseRepository(ctx, p.before.ID); err != nil {
				return nil, err
			}
		}
		now, err := w.Gateway(ctx, actor.Account.ID, p.before.ID)
		if err != nil {
			return nil, err
		}
		version, err := w.TableVersion(ctx, p.before.ID)
		if err != nil {
			return nil, err
		}
		if now.Version != p.before.Version || version != p.version {
			return nil, errChangedMeanwhile
		}
		if p.idle {
			return p.result(false), nil
		}
		if err := p.checkCanaryOf(now); err != nil { // it may have been started meanwhile
			return nil, err
		}
		// Another gateway of the account may have got routes meanwhile.
		if err := s.roomFor(ctx, w, actor, len(p.delta.table)-p.routes, p.doc.routesField()); err != nil {
			return nil, err
		}
		if err := w.apply(ctx, p); err != nil {
			return nil, err
		}
		return p.result(false), w.canaryMeetsPush(ctx, p, now)
	})
	if err != nil {
		s.discard(ctx, p)
	}
	return result, err
}

// discard removes what was stored for a push that has failed. If its transaction was committed, it does nothing.
func (s *Service) discard(ctx context.Context, p *pushChange) {
	if p.prepared == nil {
		return
	}
	if err := s.cfg.Store.Discard(ctx, p.prepared); err != nil {
		s.cfg.Log.WarnContext(ctx, "could not remove the route table of a push that failed; it is removed later", "error", err)
	}
}

// plan is what a push changes about a gateway.
type pushChange struct {
	doc     *document
	before  *gateway.Gateway
	after   gateway.Gateway
	routes  int             // number of routes before
	current []gateway.Route // the routes before; nil unless it is a dry run
	delta   delta

	settings []SettingChange
	warnings []string // of the settings

	idle bool // the content is the same, and nothing changes

	version  TableVersion // of the routes before
	source   gateway.Source
	author   string
	follows  string           // a warning if the gateway follows a repository
	replaced gateway.Revision // the newest before, without content; empty if there is none
	now      time.Time
	prepared Prepared // nil until it is
}

func (s *Service) changeOfPush(ctx context.Context, tx ReadTx, actor *Actor, gatewayID string, doc *document, m Match) (*pushChange, error) {
	before, err := s.gateway(ctx, tx, actor, gatewayID)
	if err != nil {
		return nil, err
	}
	p := &pushChange{doc: doc, before: before, after: *before, source: doc.source(actor), now: s.now()}
	if p.settings, err = s.applySettings(ctx, tx, actor, p); fault.CodeOf(err) == fault.Conflict {
		return nil, cmp.Or(require(m, before.Version), err)
	} else if err != nil {
		return nil, err
	}
	claims, err := claimHeaders(ctx, tx, &p.after)
	if err != nil {
		return nil, err
	}
	if err := fault.Join(doc.checkUpstreams(&p.after, claims...), p.checkCanaryOf(before)); err != nil {
		return nil, err
	}
	if err := require(m, before.Version); err != nil {
		return nil, err
	}
	if err := roomForUpstreams(ctx, tx, &s.cfg.Bounds, before, &p.after); err != nil {
		return nil, err
	}
	if p.after.Name != before.Name {
		p.after.SharesName = false
	}
	if err := checkName(ctx, tx, before.Name, &p.after, "gateway.name"); fault.CodeOf(err) == fault.Conflict {
		p.warnings = append(p.warnings, fault.MessageOf(err)) // another change may come first; apply refuses it
	} else if err != nil {
		return nil, err
	}
	warnings, err := checkHostname(ctx, tx, before.Hostname, &p.after, "gateway.hostname")
	if err != nil {
		return nil, err
	}
	p.warnings = append(p.warnings, warnings...)
	table, err := tx.RouteTable(ctx, gatewayID)
	if err != nil {
		return nil, err
	}
	if p.version, err = tx.TableVersion(ctx, gatewayID); err != nil {
		return nil, err
	}
	if p.author = doc.author; doc.commit == "" {
		if p.author, err = authorOf(ctx, tx, actor); err != nil {
			return nil, err
		}
	}
	if p.replaced, err = newestRevision(ctx, tx, gatewayID); err != nil {
		return nil, err
	}
	p.current, p.routes = table, len(table)
	if p.follows, err = repositoryWarning(ctx, tx, actor, gatewayID, doc); err != nil {
		return nil, err
	}
	p.delta = deltaOf(table, doc, before, &p.after, p.now)
	if err := doc.chooseChecks(ctx, tx, &s.cfg.Bounds, &p.after); err != nil {
		return nil, err
	}
	if err := s.roomFor(ctx, tx, actor, len(p.delta.table)-len(table), doc.routesField()); err != nil {
		return nil, err
	}
	if err := s.roomForRoutes(ctx, tx, actor, gateway.RouteBytes(p.delta.table)-gateway.RouteBytes(table)); err != nil {
		return nil, err
	}
	if p.delta.isEmpty() && len(p.settings) == 0 && (doc.kind == gateway.ConfigDocument || p.after.Requests.Checks == before.Requests.Checks) {
		if p.idle, err = repeats(ctx, tx, before, doc); err != nil {
			return nil, err
		}
	}
	if !p.idle {
		if err := s.roomForRevision(ctx, tx, actor); err != nil {
			return nil, err
		}
		unmatched, err := unmatchedWarnings(ctx, tx, actor, gatewayID, p.delta.table)
		if err != nil {
			return nil, err
		}
		p.warnings = append(p.warnings, unmatched...)
		switch warning, err := p.warnOfCanary(ctx, tx); {
		case err != nil:
			return nil, err
		case warning != "":
			p.warnings = append(p.warnings, warning)
		}
	}
	p.after.Revision = before.Revision + 1
	p.after.Version = before.Version + 1
	return p, nil
}

// applySettings changes p.after as p's document says, and returns the settings that change.
func (s *Service) applySettings(ctx context.Context, tx ReadTx, actor *Actor, p *pushChange) ([]SettingChange, error) {
	edit := &p.doc.edit
	if p.doc.rollback {
		var section gateway.Patch
		section, p.warnings = restorable(p.doc.section, p.before)
		err := restoreSplitKeys(ctx, tx, p.before.AccountID, &section)
		if err != nil {
			return nil, err
		}
		if edit, err = s.readPatch(actor, &section, true); err != nil {
			return nil, fault.Prefixed("gateway", err)
		}
	}
	if err := edit.apply(&p.after); fault.CodeOf(err) == fault.Conflict {
		return nil, p.doc.locatedConflict(err)
	} else if err != nil {
		return nil, p.doc.located(fault.Prefixed("gateway", err))
	}
	if err := setDefaultPlan(ctx, tx, p.before.DefaultPlan, &p.after); err != nil {
		return nil, p.doc.located(fault.Prefixed("gateway", err))
	}
	if err := checkIssuers(ctx, tx, p.before, &p.after); err != nil {
		return nil, p.doc.located(fault.Prefixed("gateway", err))
	}
	s.setHostname(&p.after)
	return settingChanges(p.before, &p.after), nil
}

// repeats reports whether a document that changes no route, limit or setting needs no revision
// (contract, section 5). A spec or rollback with other content needs one, because the content is
// returned as the gateway's spec.
func repeats(ctx context.Context, tx ReadTx, g *gateway.Gateway, doc *document) (bool, error) {
	if doc.kind == gateway.ConfigDocument && !doc.rollback {
		return true, nil
	}
	if g.Revision == 0 {
		return false, nil
	}
	current, err := tx.Revision(ctx, g.ID, g.Revision)
	if err != nil {
		return false, err
	}
	return current.Kind == doc.kind && bytes.Equal(current.Content, doc.content), nil
}

func (p *pushChange) result(dryRun bool) *PushResult {
	if p == nil {
		return nil
	}
	r := &PushResult{
		Added:     routeChanges(p.delta.added, !dryRun),
		Removed:   routeChanges(p.delta.removed, true),
		Changed:   p.delta.changes(),
		Unchanged: p.delta.unchanged,
		Warnings:  slices.Concat([]string{}, p.warnings),
		Settings:  p.settings,
	}
	if !dryRun && !p.idle {
		r.Revision = p.after.Revision
	}
	if p.follows != "" {
		r.Warnings = append(r.Warnings, p.follows)
	}
	r.Warnings = append(r.Warnings, p.doc.uncheckedWarnings(&p.after)...)
	if p.doc.warnings != nil {
		r.Warnings = append(r.Warnings, p.doc.warnings(p.after.Upstream.URL)...)
	}
	return r
}

// apply carries out p and stores its audit record and event.
func (w *work) apply(ctx context.Context, p *pushChange) error {
	g := &p.after
	if err := w.mayGrow(ctx); err != nil {
		return err
	}
	if err := w.roomForUpstreams(ctx, p.before, g); err != nil {
		return err
	}
	if err := p.confirmChecks(ctx, w, w.bounds); err != nil {
		return err
	}
	if err := checkName(ctx, w, p.before.Name, g, "gateway.name"); err != nil {
		return err
	}
	// The plan may have got another name, or be gone, since the push was prepared.
	if err := setDefaultPlan(ctx, w, p.before.DefaultPlan, g); err != nil {
		return p.doc.located(fault.Prefixed("gateway", err))
	}
	if err := checkIssuers(ctx, w, p.before, g); err != nil {
		return p.doc.located(fault.Prefixed("gateway", err))
	}
	if g.Default && !p.before.Default {
		if err := w.clearDefault(ctx); err != nil {
			return err
		}
	}
	if err := w.UpdateGateway(ctx, g); err != nil {
		return err
	}
	if err := w.meetCertificate(ctx, p.before, g); err != nil {
		return err
	}
	if err := w.InsertPrepared(ctx, p.prepared); err != nil {
		return err
	}
	diff := gatewayDiff(p.before, g)
	diff["routes"] = [2]any{p.routes, len(p.delta.table)}
	diff["author"] = [2]any{orNil(p.replaced.Author), orNil(p.author)}
	if p.replaced.Commit != "" || p.doc.commit != "" {
		diff["commit"] = [2]any{orNil(p.replaced.Commit), orNil(p.doc.commit)}
	}
	if err := w.audit(ctx, p.doc.action(), g.ID, g.ID, diff); err != nil {
		return err
	}
	err := w.raise(ctx, event.GatewaySpecPushed, event.Push{
		GatewayID: g.ID,
		Revision:  g.Revision,
		Source:    string(p.source),
		Commit:    textOrNil(p.doc.commit),
		Author:    p.author,
		Added:     len(p.delta.added),
		Removed:   len(p.delta.removed),
		Changed:   len(p.delta.changed),
	})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(p.delta.table, func(r gateway.Route) bool { return r.Auth.TakesTokens() }) && !g.NeedsUpstreams() {
		if err := w.changed(ctx, snapshot.UpstreamChange, g.ID); err != nil {
			return err
		}
	}
	return w.gatewayChanged(ctx, g)
}

// revision returns the revision that p creates.
func (p *pushChange) revision() *gateway.Revision {
	return &gateway.Revision{
		ID:        id.NewAt(id.Revision, p.now),
		GatewayID: p.after.ID,
		Number:    p.after.Revision,
		Source:    p.source,
		Kind:      p.doc.kind,
		Author:    p.author,
		Commit:    p.doc.commit,
		CreatedAt: p.now,
		Added:     len(p.delta.added),
		Removed:   len(p.delta.removed),
		Changed:   len(p.delta.changed),
		Content:   p.doc.content,
		Routes:    p.delta.table,
	}
}

// authorOf returns the author of a push that comes from no commit: the owner of the calling key, or the
// key's name.
func authorOf(ctx context.Context, tx KeyReader, actor *Actor) (string, error) {
	if actor.Kind == UserActor {
		return cmp.Or(actor.User.Email, actor.User.Label()), nil
	}
	if actor.Kind != KeyActor {
		return "", nil
	}
	k, err := tx.Key(ctx, actor.Account.ID, actor.KeyID)
	if fault.CodeOf(err) == fault.NotFound {
		return "", nil // the transaction refuses it
	}
	if err != nil {
		return "", err
	}
	return cmp.Or(k.Owner, k.Name), nil
}

// newestRevision returns the newest revision of the gateway without its content, or an empty one.
func newestRevision(ctx context.Context, tx RevisionReader, gatewayID string) (gateway.Revision, error) {
	list, err := tx.Revisions(ctx, gatewayID, 1, 0)
	if err != nil || len(list) == 0 {
		return gateway.Revision{}, err
	}
	return list[0], nil
}

// textOrNil returns nil for no text.
func textOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

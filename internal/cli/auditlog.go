package cli

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// auditFlags are the filters of the audit log.
type auditFlags struct {
	filter client.AuditFilter
	span   spanFlags
}

func (o *auditFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.filter.Kind, "kind", "", "only records of this `kind`: authentication or management")
	f.StringVar(&o.filter.Outcome, "outcome", "", "only records with this `outcome`: success, key_invalid, key_expired or scope_insufficient")
	f.BoolVar(&o.filter.Notable, "notable", false, "only changes and refusals, without the authentications that succeeded")
	f.StringVar(&o.filter.KeyPrefix, "key-prefix", "", "only records of keys with this `prefix`, such as kg_4tQx9Z")
	f.StringVar(&o.filter.KeyID, "key-id", "", "only records of the key with this `id`, name or prefix")
	f.StringVar(&o.filter.GatewayID, "gateway", "", "only records of the gateway with this `id`, name or hostname")
	f.StringVar(&o.filter.ActorKeyID, "actor", "", "only changes that the key with this `id`, name or prefix made")
	o.span.add(f, "records")
}

func (o *auditFlags) read(c *cobra.Command) (err error) {
	if err := noneEmpty(c); err != nil {
		return err
	}
	o.filter.Since, o.filter.Until, err = o.span.span(time.Now())
	return err
}

// records returns the filters that may be names.
func (o *auditFlags) records() records {
	return records{gateway: &o.filter.GatewayID, key: &o.filter.KeyID, actor: &o.filter.ActorKeyID}
}

type auditLog struct {
	*app
	auditFlags
	limit  int
	follow bool
}

func newAuditLog(a *app) *cobra.Command {
	o := &auditLog{app: a}
	c := &cobra.Command{
		Use:   "audit-log",
		Short: "Show the audit log: authentications and changes",
		Long: `Show the audit log, newest record first: every authentication on both planes, and
every change made through the management API. A table shows at most 100 records
unless --limit is given.`,
		Example: "  keygate audit-log --outcome key_expired --since 24h\n  keygate audit-log --follow --gateway gw_01j…\n  keygate audit-log --kind management --actor key_01j… -o json",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return group(c, args)
			}
			return nil
		},
		RunE: o.run, SuggestionsMinimumDistance: maxTypos,
	}
	f := c.Flags()
	o.add(f)
	limitFlag(f, &o.limit)
	f.BoolVarP(&o.follow, "follow", "f", false, "show the latest records, oldest first, then new records as they arrive, until Ctrl-C; in JSON, one object per line")
	c.AddCommand(newAuditHead(a), newAuditExport(a), newAuditVerify(a))
	return c
}

func (o *auditLog) run(c *cobra.Command, _ []string) error {
	if err := o.read(c); err != nil {
		return err
	}
	if o.follow {
		return o.runFollow(c)
	}
	limit := o.tableLimit(c, o.limit)
	api, err := o.list(&o.filter.ListOptions, limit)
	if err != nil {
		return err
	}
	if err := o.identify(api, o.records()); err != nil {
		return err
	}
	records := api.AuditLog(c.Context(), o.filter)
	if o.ForPeople() {
		records = withoutRepeats(records)
	}
	return terminal.PrintList(o.Console, limit, records, terminal.Listing[client.AuditEntry]{
		Columns: auditColumns(), Row: o.row, Empty: noneMatch(c, "records", ""),
	})
}

// recordedChanges holds the requests of the management records that were read. A request that
// changes something has two records: one of its authentication and one of the change. The latter
// also names the key and the outcome.
type recordedChanges map[string]bool

// repeats reports whether e is the authentication record of a request whose change was read
// before: records are read newest first, and the change comes after the authentication.
func (c recordedChanges) repeats(e *client.AuditEntry) bool {
	if e.AuditAction == nil {
		return c[e.RequestID]
	}
	if len(c) >= followMemory {
		clear(c)
	}
	if e.RequestID != "" {
		c[e.RequestID] = true
	}
	return false
}

// withoutRepeats returns records with one record for each change.
func withoutRepeats(records iter.Seq2[client.AuditEntry, error]) iter.Seq2[client.AuditEntry, error] {
	return func(yield func(client.AuditEntry, error) bool) {
		read := recordedChanges{}
		for e, err := range records {
			if err == nil && read.repeats(&e) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func auditColumns() []terminal.Column {
	return []terminal.Column{
		{Name: "TIME"}, {Name: "KIND", Least: 14}, {Name: "OUTCOME", State: true, Least: 18}, {Name: "KEY PREFIX", Rank: 1, Least: 10}, {Name: "KEY ID", Rank: 7, Least: 30},
		{Name: "METHOD", Least: 6}, {Name: "PATH", Flex: true, Least: 24}, {Name: "ACTION", Rank: 2, Least: 16}, {Name: "TARGET", Rank: 5, Least: 30},
		{Name: "CLIENT", Rank: 3, Least: 15}, {Name: "COUNT", Rank: 6, Least: 5}, {Name: "REQUEST ID", Rank: 4}, {Name: "SUBJECT", Rank: 8, Least: 16},
	}
}

func (o *auditLog) row(e *client.AuditEntry) []string {
	action, target, count := "", "", ""
	if e.Count > 1 {
		count = strconv.FormatInt(e.Count, 10)
	}
	if e.AuditAction != nil {
		action, target = e.Action, e.Target
	}
	return []string{
		o.time(e.Time), e.Kind, e.Outcome, str(e.KeyPrefix), str(e.KeyID), e.Method, e.Path, action, target, e.ClientIP, count, e.RequestID, str(e.Subject),
	}
}

// time formats the time of a record. Rows that stay on the screen of a terminal have the
// time of day, since a time relative to now would soon be wrong.
func (o *auditLog) time(t time.Time) string {
	switch {
	case !o.Fitted():
		return t.UTC().Format("2006-01-02T15:04:05.000Z")
	case o.follow:
		return t.UTC().Format("15:04:05Z")
	default:
		return o.When(&t)
	}
}

func newAuditHead(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "head",
		Short: "Show the head of the audit log's hash chain",
		Long: `Show the head of the audit log's hash chain: the number, digest and time of the last
sealed block, and how many records are not sealed yet. Keep the digest out of reach of anyone who can change the log.
"audit-log verify --head" then proves that nothing up to this block was altered or
removed.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			api, err := a.connect()
			if err != nil {
				return err
			}
			h, err := api.AuditHead(c.Context())
			if err != nil {
				return err
			}
			return a.PrintRecord(h, func() []terminal.Field {
				return []terminal.Field{
					{"NUMBER", strconv.FormatInt(h.Number, 10)}, {"DIGEST", str(h.Digest)}, {"TIME", terminal.Moment(h.Time)},
					{"NOT SEALED", terminal.NumberOf(h.Unsealed, "record", "records")}, {"SEALED BY", terminal.Moment(h.SealedBy)},
				}
			})
		},
	}
}

// How --follow polls the log. Each poll reads back past some records that it has
// seen: a record appears when its request has ended, or after 800 ms, so records do
// not appear in the order of their times.
const (
	followInterval = time.Second
	followOverlap  = 100                     // a poll ends after this many seen records in a row,
	followDelay    = 1500 * time.Millisecond // if they are this much older than the newest record of the previous poll
	followAtStart  = 10                      // records shown first, unless --limit is given
	followMemory   = 100_000                 // records remembered as seen
)

// runFollow shows the latest records and then new ones, until the context ends or
// a signal arrives.
func (o *auditLog) runFollow(c *cobra.Command) error {
	if err := o.refuseYAML(); err != nil {
		return err
	}
	if o.span.until != "" {
		return usagef("--follow cannot be used with --until")
	}
	first := cmp.Or(o.limit, followAtStart)
	api, err := o.list(&o.filter.ListOptions, followOverlap)
	if err != nil {
		return err
	}
	if err := o.identify(api, o.records()); err != nil {
		return err
	}
	ctx, stop := o.untilSignal(c)
	defer stop()
	t := follower{
		records: func(ctx context.Context) iter.Seq2[client.AuditEntry, error] { return api.AuditLog(ctx, o.filter) },
		seen:    map[string]bool{},
	}
	if o.ForPeople() {
		t.changes = recordedChanges{}
	}
	if own, err := api.Account(ctx); err == nil {
		t.own = own.CredentialID()
	}
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	rows := o.NewStream(auditColumns()...)
	for started := false; ; started = true {
		entries, err := t.next(ctx, started, first)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Ctrl-C is the normal end
		}
		if err != nil {
			return err
		}
		if err := o.show(entries, rows); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// show prints records: rows of a table, or one record per line.
func (o *auditLog) show(entries []client.AuditEntry, rows *terminal.Table) error {
	for i := range entries {
		if o.ForPeople() {
			rows.Row(o.row(&entries[i])...)
		} else if err := o.PrintLine(&entries[i]); err != nil {
			return err
		}
	}
	if o.ForPeople() {
		return rows.Flush()
	}
	return nil
}

// follower finds the records that appeared since its last poll.
type follower struct {
	records func(ctx context.Context) iter.Seq2[client.AuditEntry, error] // newest first
	own     string                                                        // identifier of the key or user that it calls with; "" if unknown
	seen    map[string]bool
	changes recordedChanges // nil to show both records of a change
	order   []string        // keys of seen, oldest first
	start   time.Time       // of the oldest record that the first poll read; older records are never shown
	newest  time.Time       // of the newest record that the previous poll read
}

// next returns the records that it has not returned before, oldest first. The
// first poll (started is false) returns only the newest records, at most first of
// them, and marks all older ones as seen.
func (t *follower) next(ctx context.Context, started bool, first int) ([]client.AuditEntry, error) {
	var fresh []client.AuditEntry
	var newest time.Time
	known, met := 0, false
	for e, err := range t.records(ctx) {
		if err != nil {
			return nil, err
		}
		if met && !e.Time.After(t.start) {
			break
		}
		if newest.IsZero() {
			newest = e.Time
		}
		switch {
		case !t.remember(&e):
			known++
			met = true
		case e.Path == "/v1/audit-log" && e.AuditAction == nil && t.own != "" && (str(e.KeyID) == t.own || str(e.Subject) == t.own):
			// The command's own call: showing it would cause another.
		case t.changes != nil && t.changes.repeats(&e):
			known = 0
		default:
			known = 0
			fresh = append(fresh, e)
		}
		if known >= followOverlap && e.Time.Before(t.newest.Add(-followDelay)) {
			break
		}
		if !started && len(fresh) >= max(first, followOverlap) {
			t.start = e.Time
			break
		}
	}
	t.newest = newest
	if !started {
		fresh = fresh[:min(first, len(fresh))]
	}
	slices.Reverse(fresh)
	return fresh, nil
}

// remember marks a record as seen and reports whether it was new.
func (t *follower) remember(e *client.AuditEntry) bool {
	id := e.RequestID + " " + e.Kind
	if e.AuditAction != nil {
		// Changes that the server makes by itself have no request identifier.
		id += " " + e.Action + " " + e.Target + " " + e.Time.String()
	}
	if t.seen[id] {
		return false
	}
	t.seen[id] = true
	if t.order = append(t.order, id); len(t.order) > followMemory {
		for _, old := range t.order[:followMemory/2] {
			delete(t.seen, old)
		}
		t.order = append([]string(nil), t.order[followMemory/2:]...)
	}
	return true
}

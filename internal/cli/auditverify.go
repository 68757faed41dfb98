package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/audit"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/config"
	"github.com/keygate/keygate/internal/server"
)

type auditVerify struct {
	storeCommand
	account, head string
}

func newAuditVerify(a *app) *cobra.Command {
	o := &auditVerify{storeCommand: storeCommand{app: a}}
	c := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Verify offline that no sealed block of the audit log was altered, removed or moved",
		Long: `Verify the hash chain of the audit log's sealed blocks, in the store on this machine
or in a file that "audit-log export --blocks" wrote (- for standard input). It reads
the store directly; a server may be running.

Someone who can write the whole store could recompute the whole chain. --head detects
that too: it takes a digest that "audit-log head" printed earlier and that you kept
elsewhere, and fails if the digest is not in the chain.

Records of the last minutes are not in a block yet; the output says how many, and by
when a running server seals them. The exit status is 6 if the chain is broken.`,
		Example: "  keygate audit-log verify --data-dir /var/lib/keygate --head 9f86d081884c7d65…\n  keygate audit-log verify blocks.jsonl",
		Args:    atMost(1), RunE: o.run,
	}
	f := c.Flags()
	f.StringVar(&o.head, "head", "", "`digest` of an earlier head, in hexadecimal")
	f.StringVar(&o.account, "account", "default", "`name` of the account whose log to verify, or its identifier after it was deleted")
	o.loader = config.Register(f)
	return c
}

func (o *auditVerify) run(c *cobra.Command, args []string) error {
	var given *audit.Digest
	if c.Flags().Changed("head") {
		d, err := audit.ParseDigest(o.head)
		if err != nil {
			return usagef("--head %q is not a digest: %s", o.head, err)
		}
		given = &d
	}
	report, err := o.verify(c, args, given)
	if err != nil {
		return err
	}
	return o.PrintRecord(verified(report), func() []terminal.Field {
		fields := []terminal.Field{
			{"RESULT", resultOf(&report)}, {"ACCOUNT", report.AccountID}, {"BLOCKS", strconv.FormatInt(report.Blocks, 10)},
			{"RECORDS", recordsOf(&report)}, {"FIRST RECORD", momentOf(report.First)}, {"LAST RECORD", momentOf(report.Last)},
			{"HEAD", strconv.FormatInt(report.Head.Number, 10)}, {"DIGEST", digestOf(report.Head)},
		}
		if w := report.Unsealed; w != nil {
			fields = append(fields, terminal.Field{"NOT SEALED", notSealed(w)})
		}
		if report.Base.Number > 0 {
			fields = append(fields, terminal.Field{"REMOVED BY RETENTION", "blocks up to " + strconv.FormatInt(report.Base.Number, 10)})
		}
		if given != nil {
			fields = append(fields, terminal.Field{"HEAD GIVEN", "block " + strconv.FormatInt(report.Given, 10)})
		}
		if n := report.Cut.Records; n > 0 {
			fields = append(fields, terminal.Field{"GAP", strconv.FormatInt(n, 10) + " records from " + momentOf(report.Cut.First) + " to " + momentOf(report.Cut.Last) +
				" were removed before their retention ended, because the log exceeded --audit-max-bytes"})
		}
		return fields
	})
}

// recordsOf says how many records were verified, and for how many events they stand if that is more.
func recordsOf(r *audit.Report) string {
	n := strconv.FormatInt(r.Records, 10)
	if r.Events > r.Records {
		n += ", which stand for " + strconv.FormatInt(r.Events, 10) + " events"
	}
	return n
}

// resultOf says what a verification without a problem has shown.
func resultOf(r *audit.Report) string {
	if r.Blocks == 0 {
		return "the chain is intact, but has no blocks: nothing was verified"
	}
	return "the chain is intact"
}

// notSealed says how many records are in no block yet, and by when they will be.
func notSealed(w *audit.Waiting) string {
	n := w.Total()
	if n == 0 {
		return "no records"
	}
	return fmt.Sprintf("%s, the first of %s: a running server seals what is there by %s",
		terminal.NumberOf(n, "record", "records"), momentOf(w.Oldest), momentOf(w.SealedBy()))
}

func (o *auditVerify) verify(c *cobra.Command, args []string, given *audit.Digest) (audit.Report, error) {
	if len(args) == 0 {
		settings, log, err := o.load()
		if err != nil {
			return audit.Report{}, err
		}
		return server.VerifyAudit(c.Context(), settings, log, o.account, given)
	}
	for _, flag := range []string{"account", "data-dir"} {
		if c.Flags().Changed(flag) {
			return audit.Report{}, usagef("--%s is for the store and cannot be used with a file", flag)
		}
	}
	if args[0] == "-" {
		return audit.VerifyExport(o.In, given)
	}
	f, err := os.Open(args[0])
	if err != nil {
		return audit.Report{}, err
	}
	report, err := audit.VerifyExport(io.Reader(f), given)
	return report, errors.Join(err, f.Close())
}

// verifiedLog is the output of verify in JSON and YAML.
type verifiedLog struct {
	AccountID string     `json:"account_id"`
	Blocks    int64      `json:"blocks"`
	Records   int64      `json:"records"`
	Events    int64      `json:"events"` // that the records stand for
	First     *time.Time `json:"first_at"`
	Last      *time.Time `json:"last_at"`
	Base      int64      `json:"base"` // number of the last block that retention removed; 0 if none
	Number    int64      `json:"number"`
	Digest    *string    `json:"digest"`
	HeadFound *int64     `json:"head_found"` // number of the block of --head; null without one
	Removed   int64      `json:"removed"`    // records that were removed before their retention ended
	Unsealed  *int64     `json:"unsealed"`   // records that are in no block yet; null for a file
	SealedBy  *time.Time `json:"sealed_by"`  // by when a running server seals them; null if there are none
}

func verified(r audit.Report) verifiedLog {
	out := verifiedLog{
		AccountID: r.AccountID, Blocks: r.Blocks, Records: r.Records, Events: r.Events, Base: r.Base.Number, Number: r.Head.Number, Removed: r.Cut.Records,
	}
	if !r.First.IsZero() {
		out.First, out.Last = &r.First, &r.Last
	}
	if d := digestOf(r.Head); d != "" {
		out.Digest = &d
	}
	if w := r.Unsealed; w != nil {
		n := w.Total()
		if out.Unsealed = &n; n > 0 {
			by := w.SealedBy()
			out.SealedBy = &by
		}
	}
	if r.Given > 0 {
		out.HeadFound = &r.Given
	}
	return out
}

func digestOf(h audit.Head) string {
	if h.Number == 0 {
		return ""
	}
	text, err := audit.Digest(h.Digest).MarshalText()
	if err != nil {
		return ""
	}
	return string(text)
}

func momentOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return terminal.Moment(&t)
}

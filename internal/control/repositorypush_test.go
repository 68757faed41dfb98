package control_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

const (
	commitOne = "1111111111111111111111111111111111111111"
	commitTwo = "2222222222222222222222222222222222222222222222222222222222222222"
	ada       = "Ada <ada@acme.example>"
)

// commitSpec returns a push of a spec with these paths.
func (p *pushed) commitSpec(commit, author string, paths ...string) control.RepositoryPush {
	return control.RepositoryPush{
		AccountID: p.caller.Account.ID, GatewayID: p.id, Kind: gateway.SpecDocument, Content: spec(paths...), Commit: commit, Author: author,
	}
}

// Guarantee: contract 5, the revision, the event and the audit record of a push from a repository
// have the source repository, the commit and its author, and no key. After other pushes, all three
// say who pushed, and have no commit.
func TestRepositoryPushIsRecordedWithItsCommit(t *testing.T) {
	p := newPushed(t, 1)
	before := p.records(p.caller.Account.ID)
	p.want(must[*control.PushResult](p.harness)(p.PushRepository(ctx(), p.commitSpec(commitOne, ada, "/a", "/z"))), "2: +[GET /z] -[GET /b,GET /c] ~[] =1")
	config := control.RepositoryPush{
		AccountID: p.caller.Account.ID, GatewayID: p.id, Kind: gateway.ConfigDocument, Content: []byte(pushedConfig), Commit: commitTwo, Author: "Bo",
	}
	must[*control.PushResult](p.harness)(p.PushRepository(ctx(), config))
	p.rollback(1)

	list := must[[]gateway.Revision](p.harness)(p.Revisions(ctx(), p.caller, p.id, 10, 0))
	got := []string{}
	for _, r := range list[:3] {
		got = append(got, fmt.Sprintf("%s %s %s|%s", r.Source, r.Kind, r.Commit, r.Author))
	}
	want := []string{"rollback spec |acme admin", "repository config " + commitTwo + "|Bo", "repository spec " + commitOne + "|" + ada}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got revisions %q, want %q", got, want)
	}

	written := p.records(p.caller.Account.ID).since(before)
	got = nil
	for i, e := range written.events {
		d, a := dataOf(e), written.audits[i]
		got = append(got, fmt.Sprint(d["source"], " ", d["commit"], " ", d["author"], " | ", a.Action, " ", a.ActorKeyID == "", " ", a.Diff["commit"], " ", a.Diff["author"]))
	}
	want = []string{
		"repository " + commitOne + " " + ada + " | spec.push true [<nil> " + commitOne + "] [acme admin " + ada + "]",
		"repository " + commitTwo + " Bo | config.push true [" + commitOne + " " + commitTwo + "] [" + ada + " Bo]",
		"rollback <nil> acme admin | revision.rollback false [" + commitTwo + " <nil>] [Bo acme admin]",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Guarantee: what Within stores is stored with the push, even if the push changes nothing; if
// Within fails, nothing of the push is stored.
func TestRepositoryPushIsOneTransaction(t *testing.T) {
	p := newPushed(t, 1)
	refused := errors.New("paused")
	push := p.commitSpec(commitOne, ada, "/z")
	push.Within = func(context.Context, control.Tx) error { return refused }
	p.wantNoRecords(p.caller.Account.ID, func() {
		if _, err := p.PushRepository(ctx(), push); !errors.Is(err, refused) {
			t.Errorf("got error %v, want that of Within", err)
		}
	})
	calls := 0
	push.Within = func(ctx context.Context, tx control.Tx) error {
		calls++
		g, err := tx.Gateway(ctx, p.caller.Account.ID, p.id)
		if err == nil && g.Revision != int64(calls) {
			t.Errorf("in its transaction %d the gateway has revision %d", calls, g.Revision)
		}
		return err
	}
	must[*control.PushResult](p.harness)(p.PushRepository(ctx(), push))
	p.wantNoRecords(p.caller.Account.ID, func() {
		p.want(must[*control.PushResult](p.harness)(p.PushRepository(ctx(), push)), "0: +[] -[] ~[] =1")
	})
	if calls != 2 {
		t.Errorf("Within ran %d times in two pushes", calls)
	}
}

// Guarantee: a push that is not valid, or of an account that is suspended, or to another account's
// gateway, changes nothing.
func TestInvalidRepositoryPushes(t *testing.T) {
	p := newPushed(t, 1)
	other, _ := p.account("other")
	stopped, _ := p.account("stopped")
	must[*account.Account](p.harness)(p.UpdateAccount(ctx(), p.caller, stopped.ID, control.AccountPatch{State: value("suspended")}, nil))
	for name, tc := range map[string]struct {
		change func(*control.RepositoryPush)
		code   fault.Code
		field  string
	}{
		"a short commit":      {func(r *control.RepositoryPush) { r.Commit = "abc123" }, fault.ValidationFailed, "commit"},
		"a commit in capital": {func(r *control.RepositoryPush) { r.Commit = strings.Repeat("A", 40) }, fault.ValidationFailed, "commit"},
		"no commit":           {func(r *control.RepositoryPush) { r.Commit = "" }, fault.ValidationFailed, "commit"},
		"a bad document":      {func(r *control.RepositoryPush) { r.Content = []byte("paths: [") }, fault.ValidationFailed, ""},
		"another account":     {func(r *control.RepositoryPush) { r.AccountID = other.ID }, fault.NotFound, ""},
		"no account":          {func(r *control.RepositoryPush) { r.AccountID = "acct_none" }, fault.NotFound, ""},
		"a suspended account": {func(r *control.RepositoryPush) { r.AccountID = stopped.ID }, fault.Conflict, ""},
	} {
		t.Run(name, func(t *testing.T) {
			push := p.commitSpec(commitOne, ada, "/z")
			tc.change(&push)
			p.wantNoRecords(p.caller.Account.ID, func() {
				_, err := p.PushRepository(ctx(), push)
				p.wantCode(err, tc.code, tc.field)
			})
		})
	}
}

// Guarantee: whatever an author writes into a commit, the revision has a single printable line of
// at most 255 characters, which keeps names as they are.
func TestAuthorsOfCommitsAreCleaned(t *testing.T) {
	p := newPushed(t, 0)
	n := 0
	author := func(raw string) string {
		n++
		must[*control.PushResult](p.harness)(p.PushRepository(ctx(), p.commitSpec(commitOne, raw, "/a", fmt.Sprintf("/n%d", n))))
		return must[*gateway.Revision](p.harness)(p.Revision(ctx(), p.caller, p.id, int64(n))).Author
	}
	for raw, want := range map[string]string{
		"José Ñ <j@ñ.example>":        "José Ñ <j@ñ.example>",
		"a\x1b[31mred\nsecond\t line": "a [31mred second line",
		"\xff\xfe":                    "",
	} {
		if got := author(raw); got != want {
			t.Errorf("got author %q of %q, want %q", got, raw, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		got := author(string(rapid.SliceOfN(rapid.Byte(), 0, 1200).Draw(t, "author")))
		if utf8.RuneCountInString(got) > 255 || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\t\x1b\x00") {
			t.Fatalf("got author %q", got)
		}
	})
}

package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/event"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// noSyncer accepts every repository and syncs none.
type noSyncer struct{}

func (noSyncer) Check(control.RepositorySource) error       { return nil }
func (noSyncer) Changed(string, string)                     {}
func (noSyncer) Wake(string, string)                        {}
func (noSyncer) Sync(context.Context, string, string) error { return nil }
func (noSyncer) Running(string) bool                        { return false }

// input is a repository without secrets.
func input(change func(*control.RepositoryInput)) control.RepositoryInput {
	in := control.RepositoryInput{URL: "https://git.example/a.git", Branch: "main", Path: "openapi.yaml", Kind: "spec"}
	if change != nil {
		change(&in)
	}
	return in
}

func withSecrets(in *control.RepositoryInput) {
	in.Credential.Present, in.Credential.Value = true, control.RepositoryCredential{Token: "correct horse"}
	in.CommitStatus.Present, in.CommitStatus.Value = true, control.CommitStatus{Provider: "github", Token: "battery"}
	in.HostKey = value("ssh-ed25519 SHA256:abc")
}

func (p *pushed) connect(in control.RepositoryInput) *control.Repository {
	p.tb.Helper()
	return must[*control.Repository](p.harness)(p.PutRepository(ctx(), p.caller, p.id, in, nil))
}

func (p *pushed) toSync() *control.RepositoryToSync {
	p.tb.Helper()
	return must[*control.RepositoryToSync](p.harness)(p.RepositoryToSync(ctx(), p.id))
}

// Guarantee: contract 5, a change of the URL drops the credential, the token for commit statuses and
// the pinned host key; otherwise an absent secret stays, "***" keeps it and null removes it. They
// are encrypted in the store, and the audit record shows "***".
func TestAnotherURLDropsTheSecretsOfARepository(t *testing.T) {
	p := newPushed(t, 0)
	credential := func() string {
		var c control.RepositoryCredential
		r := p.toSync()
		if r.Credential != nil {
			p.must(json.Unmarshal(r.Credential, &c))
		}
		return c.Token + "|" + r.StatusToken + "|" + r.HostKey
	}
	const all = "correct horse|battery|ssh-ed25519 SHA256:abc"
	for name, test := range map[string]struct {
		change func(*control.RepositoryInput)
		want   string
	}{
		"absent":     {func(in *control.RepositoryInput) { in.Interval = "5m" }, all},
		"other file": {func(in *control.RepositoryInput) { in.Path, in.Branch = "b.yaml", "dev" }, all},
		"kept": {func(in *control.RepositoryInput) {
			withSecrets(in)
			in.Credential.Keep, in.Credential.Value = true, control.RepositoryCredential{}
			in.CommitStatus.Value.Token = "***"
		}, all},
		"null": {func(in *control.RepositoryInput) {
			in.Credential.Present, in.Credential.Null = true, true
			in.CommitStatus.Present, in.CommitStatus.Null = true, true
			in.HostKey = control.Optional[string]{Present: true, Null: true}
		}, "||"},
		"other URL": {func(in *control.RepositoryInput) { in.URL += "2" }, "||"},
		"other URL with a token": {func(in *control.RepositoryInput) {
			in.URL += "2"
			in.Credential.Present, in.Credential.Value.Token = true, "new"
		}, "new||"},
	} {
		p.connect(input(withSecrets))
		if got := credential(); got != all {
			t.Fatalf("got %s, want %s", got, all)
		}
		p.connect(input(test.change))
		if got := credential(); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
	p.connect(input(nil))
	for _, change := range []func(*control.RepositoryInput){
		func(in *control.RepositoryInput) {
			in.URL += "3"
			in.Credential.Present, in.Credential.Keep = true, true
		},
		func(in *control.RepositoryInput) {
			in.URL += "3"
			in.CommitStatus.Present, in.CommitStatus.Value = true, control.CommitStatus{Provider: "github", Token: "***"}
		},
	} {
		_, err := p.PutRepository(ctx(), p.caller, p.id, input(change), nil)
		p.wantCode(err, fault.ValidationFailed, "")
	}
	for _, a := range p.records(p.caller.Account.ID).audits {
		content, err := json.Marshal(a.Diff)
		p.must(err)
		if strings.Contains(string(content), "horse") || strings.Contains(string(content), "battery") || strings.Contains(string(content), "kgh_") {
			t.Errorf("%s shows a secret: %s", a.Action, content)
		}
	}
	r := must[*control.Repository](p.harness)(p.GetRepository(ctx(), p.caller, p.id))
	for _, sealed := range [][]byte{r.Credential, r.ConnectedRepository.HookSecret, r.StatusToken} {
		if strings.Contains(string(sealed), "horse") || strings.Contains(string(sealed), "kgh_") {
			t.Errorf("a secret is stored as it is: %s", sealed)
		}
	}
}

// Guarantee: every change of a repository is recorded once; the deletion of its gateway counts as a change.
func TestRepositoryChangesAreRecorded(t *testing.T) {
	p := newPushed(t, 1)
	account := p.caller.Account.ID
	recorded := func(want string, f func()) {
		t.Helper()
		before := p.records(account)
		f()
		audits, events, _ := p.records(account).since(before).summary()
		var actions []string
		for _, a := range audits {
			actions = append(actions, strings.TrimSuffix(a, " "+p.id))
		}
		if got := strings.Join(append(actions, events...), ", "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	recorded("repository.set", func() { p.connect(input(nil)) })
	recorded("", func() { p.connect(input(nil)) })
	recorded("repository.set", func() { p.connect(input(func(in *control.RepositoryInput) { in.NewHookSecret = true })) })
	recorded("repository.sync", func() {
		must[*control.Repository](p.harness)(p.SyncRepository(ctx(), p.caller, p.id, nil))
	})
	recorded("repository.pause", func() { p.rollback(1) }) // nothing else changes
	recorded("repository.resume", func() {
		must[*control.Repository](p.harness)(p.ResumeRepository(ctx(), p.caller, p.id, nil))
	})
	recorded("", func() {
		must[*control.Repository](p.harness)(p.ResumeRepository(ctx(), p.caller, p.id, nil))
	})
	recorded("repository.delete", func() {
		must[*control.Repository](p.harness)(p.DeleteRepository(ctx(), p.caller, p.id, nil))
	})
	p.connect(input(nil))
	before := p.records(account)
	must[*gateway.Gateway](p.harness)(p.DeleteGateway(ctx(), p.caller, p.id, nil))
	audits, _, _ := p.records(account).since(before).summary()
	if all := strings.Join(audits, ", "); !strings.Contains(all, "repository.delete") {
		t.Errorf("the end of the gateway recorded %s, want repository.delete too", all)
	}
}

// Guarantee: the result of a sync is stored in one transaction with its push. Nothing of it is stored
// if the repository was changed, paused or removed meanwhile.
func TestResultsOfChangedRepositoriesAreVoid(t *testing.T) {
	for name, change := range map[string]func(p *pushed){
		"changed":  func(p *pushed) { p.connect(input(func(in *control.RepositoryInput) { in.Path = "b.yaml" })) },
		"paused":   func(p *pushed) { p.rollback(1) },
		"removed":  func(p *pushed) { must[*control.Repository](p.harness)(p.DeleteRepository(ctx(), p.caller, p.id, nil)) },
		"replaced": func(p *pushed) { p.connect(input(func(in *control.RepositoryInput) { in.NewHookSecret = true })) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPushed(t, 1)
			p.connect(input(nil))
			commit := control.Commit{GatewayID: p.id, Version: p.toSync().Version, Hash: commitOne, Author: ada, Content: spec("/z"), Synced: func(*gateway.ConnectedRepository) {}}
			change(p)
			p.wantNoRecords(p.caller.Account.ID, func() {
				if _, err := p.PushCommit(ctx(), commit); !errors.Is(err, control.ErrSuperseded) {
					t.Errorf("a push: got %v, want ErrSuperseded", err)
				}
				err := p.RecordSync(ctx(), p.id, commit.Version, func(*gateway.ConnectedRepository) *event.SyncFailed { return &event.SyncFailed{} })
				if !errors.Is(err, control.ErrSuperseded) {
					t.Errorf("a failure: got %v, want ErrSuperseded", err)
				}
			})
		})
	}
	p := newPushed(t, 1)
	p.connect(input(nil))
	commit := control.Commit{GatewayID: p.id, Version: 1, Hash: commitOne, Author: ada, Content: spec("/z"), Synced: func(*gateway.ConnectedRepository) {}}
	p.must(p.RecordSync(ctx(), p.id, 1, func(r *gateway.ConnectedRepository) *event.SyncFailed {
		r.LastError, r.FailedCommit = "wrong", commitTwo
		return &event.SyncFailed{GatewayID: p.id, Message: "wrong"}
	}))
	if e := p.records(p.caller.Account.ID).events; e[len(e)-1].Type != event.GatewaySyncFailed {
		t.Errorf("got %+v, want the event with the result", e[len(e)-1])
	}
	must[*control.PushResult](p.harness)(p.PushCommit(ctx(), commit))
	r := p.toSync()
	want := gateway.RepositorySync{LastCommit: commitOne, LastSyncedAt: p.clock.now()}
	if !reflect.DeepEqual(r.RepositorySync, want) {
		t.Errorf("got %+v, want %+v", r.RepositorySync, want)
	}
}

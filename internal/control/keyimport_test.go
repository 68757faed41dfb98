package control_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
)

const foreignKey = "sk_live_51HxAbCdEfGhIjKlMnOpQr"

// foreign returns an import of a key with the scope read; edit may change it first.
func foreign(edit func(*control.ImportInput)) control.ImportInput {
	in := control.ImportInput{KeyInput: control.KeyInput{Name: "old", Scope: "read"}, Secret: foreignKey}
	if edit != nil {
		edit(&in)
	}
	return in
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func (h *harness) importKeys(c *control.Actor, all ...control.ImportInput) []control.NewKey {
	h.tb.Helper()
	return must[[]control.NewKey](h)(h.ImportKeys(ctx(), c, all))
}

// wantImportError checks that an import has the error, and that nothing was written.
func (h *harness) wantImportError(c *control.Actor, code fault.Code, field string, all ...control.ImportInput) {
	h.tb.Helper()
	h.wantNoRecords(c.Account.ID, func() {
		_, err := h.ImportKeys(ctx(), c, all)
		h.wantCode(err, code, field)
		if err != nil && strings.Contains(err.Error(), foreignKey[len(foreignKey)-8:]) {
			h.tb.Errorf("the error has the end of the key: %v", err)
		}
	})
}

// Guarantee: the fields of an imported key are validated like those of a new one, and the error has the position of the
// key; so are its string, its hash, its prefix and the time of its last use. One invalid key rejects all.
func TestInvalidImportsAreRejected(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	own := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "own", Scope: "read"}))
	clear := func(secret string) func(*control.ImportInput) {
		return func(in *control.ImportInput) { in.Secret = secret }
	}
	hash := func(text string) func(*control.ImportInput) {
		return func(in *control.ImportInput) { in.Secret, in.SHA256 = "", text }
	}
	prefix := func(text string) func(*control.ImportInput) {
		return func(in *control.ImportInput) { in.Prefix = text }
	}
	used := func(text string) func(*control.ImportInput) {
		return func(in *control.ImportInput) { in.LastUsedAt = text }
	}
	for field, list := range map[string][]func(*control.ImportInput){
		"name":       {func(in *control.ImportInput) { in.Name = "" }},
		"scope":      {func(in *control.ImportInput) { in.Scope = "root" }},
		"expires_at": {func(in *control.ImportInput) { in.ExpiresAt = "2026-02-28" }},
		"gateway_id": {func(in *control.ImportInput) { in.GatewayID = "gw_none" }},
		"plan":       {func(in *control.ImportInput) { in.Plan = control.ChoosePlan("", "none") }},
		"rate_limit": {func(in *control.ImportInput) { in.RateLimit = keyRate("0/s") }},
		"level":      {func(in *control.ImportInput) { in.Level = "account" }, func(in *control.ImportInput) { in.Level = "both" }},
		"owner":      {func(in *control.ImportInput) { in.Owner = "é" }},
		"key": {
			clear(strings.Repeat("a", 21)), clear(strings.Repeat("a", 513)), clear(foreignKey + " "), clear(foreignKey + "é"), clear(foreignKey + "\x7f"),
			clear(own.Secret), clear(own.Secret[:38] + "!"), clear("kga_" + strings.Repeat("a", 36)),
			func(in *control.ImportInput) { in.SHA256 = hashOf(foreignKey) },
		},
		"sha256": {
			clear(""), hash(hashOf("a")[:63]), hash(hashOf("a") + "0"), hash(strings.Repeat("g", 64)), hash("YQ=="),
			hash(base64.StdEncoding.EncodeToString(make([]byte, 33))), hash(base64.StdEncoding.EncodeToString(make([]byte, 32))[:40] + "\n" + "AAA="),
		},
		"key_prefix":   {prefix("other"), prefix(foreignKey[:15]), prefix("a b"), prefix(strings.Repeat("s", 17))},
		"last_used_at": {used("yesterday"), used("2026-03-01T12:00:01Z"), used("1969-12-31T23:59:59Z")},
	} {
		for _, edit := range list {
			h.wantImportError(caller, fault.ValidationFailed, "keys[1]."+field, foreign(func(in *control.ImportInput) { in.Secret += "-other" }), foreign(edit))
		}
	}
	h.wantImportError(caller, fault.ValidationFailed, "keys")
	h.wantImportError(caller, fault.ValidationFailed, "keys", slices.Repeat([]control.ImportInput{foreign(nil)}, control.MaxImport+1)...)
	h.wantImportError(caller, fault.ValidationFailed, "keys[2].sha256", foreign(func(in *control.ImportInput) { in.Secret += "-other" }), foreign(nil), foreign(hash(hashOf(foreignKey))))
	_, err := h.ImportKeys(ctx(), caller, []control.ImportInput{foreign(clear("short")), foreign(used("yesterday")), foreign(nil)})
	if got := fault.ProblemsOf(err); len(got) != 3 || got[0].Field != "keys[0].key" || got[1].Field != "keys[1].last_used_at" || got[2].Field != "keys[2].key" {
		t.Errorf("got the problems %+v; want those of all three keys", got)
	}
}

// Guarantee: a key is imported by its hash, in hexadecimal digits or base64, or in clear, with every field that a key has. It is
// stored bound to the account, with an audit record key.import, the event key.created and an entry of the change log that older
// nodes do not read. Of a key that is given in clear, only six characters are kept.
func TestImportKeys(t *testing.T) {
	h := newHarness(t)
	caller := h.caller("acme", "admin")
	g := h.gateway(caller)
	other := h.caller("other", "admin")
	before := h.records(caller.Account.ID)
	sum := sha256.Sum256([]byte("by base64"))
	made := h.importKeys(caller,
		foreign(func(in *control.ImportInput) {
			in.GatewayID, in.RateLimit, in.Owner, in.Metadata, in.ExpiresAt = g.ID, keyRate("5/s"), "cust_1", map[string]string{"from": "kong"}, "2026-12-31"
			in.Prefix, in.LastUsedAt = "sk_live_", "2026-02-01T10:00:00+02:00"
		}),
		foreign(func(in *control.ImportInput) { in.Secret += "-second"; in.Owner = "cust_1" }),
		foreign(func(in *control.ImportInput) { in.Secret, in.SHA256, in.Prefix = "", hashOf("by hex"), "old_" }),
		foreign(func(in *control.ImportInput) { in.Secret, in.SHA256 = "", base64.RawURLEncoding.EncodeToString(sum[:]) }),
	)
	got := h.records(caller.Account.ID).since(before)
	of, _ := id.Parse(id.Account, caller.Account.ID)
	for i, want := range []struct {
		secret, prefix string
		warnings       []string
	}{
		{foreignKey, "sk_live_", nil}, {foreignKey + "-second", "sk_liv", nil},
		{"by hex", "old_", []string{apikey.StrengthUnknown}}, {"by base64", "", []string{apikey.StrengthUnknown}},
	} {
		k := made[i]
		if k.Digest != apikey.ImportedDigest(of, apikey.DigestOf(want.secret)) || k.Prefix != want.prefix || !k.Imported || k.Secret != "" || !slices.Equal(k.Warnings, want.warnings) {
			t.Errorf("key %d: got %+v; want the digest of its string bound to the account, the prefix %q and the warnings %q", i, k, want.prefix, want.warnings)
		}
		if stored := h.key(caller, k.ID); !reflect.DeepEqual(*stored, k.Key) {
			t.Errorf("got stored key %+v; want the returned one, %+v", stored, k.Key)
		}
		if _, err := h.Key(ctx(), other, k.ID); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("another account got %v; want %s", err, fault.NotFound)
		}
	}
	k := made[0]
	if k.GatewayID != g.ID || k.RateLimit.String() != "5/s" || k.Owner != "cust_1" || k.OwnerID == "" || k.OwnerID != made[1].OwnerID || k.Metadata["from"] != "kong" ||
		!k.ExpiresAt.Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) || !k.LastUsedAt.Equal(time.Date(2026, 2, 1, 8, 0, 0, 0, time.UTC)) {
		t.Errorf("got %+v; want every field as given, and one owner for both keys", k.Key)
	}
	audits, events, changes := got.summary()
	ids := []string{made[0].ID, made[1].ID, made[2].ID, made[3].ID}
	imports := slices.DeleteFunc(slices.Clone(audits), func(s string) bool { return !strings.HasPrefix(s, "key.import ") })
	created := slices.DeleteFunc(slices.Clone(events), func(s string) bool { return !strings.HasPrefix(s, "key.created ") })
	logged := slices.DeleteFunc(slices.Clone(changes), func(s string) bool { return !strings.HasPrefix(s, "import ") })
	for kind, of := range map[string][]string{"key.import ": imports, "key.created ": created, "import ": logged} {
		for _, keyID := range ids {
			if len(of) != len(ids) || !slices.Contains(of, kind+keyID) {
				t.Errorf("got %q; want one %sfor each key", of, kind)
			}
		}
	}
	for _, r := range got.audits {
		if strings.Contains(fmt.Sprint(r), foreignKey[8:]) {
			t.Errorf("an audit record has the key: %v", r)
		}
		if r.Action == "key.import" && r.Diff["imported"] != [2]any{nil, true} {
			t.Errorf("got the diff %v; want imported", r.Diff)
		}
	}
}

// Guarantee: a key that the account has, has revoked, or has replaced in a rotation, is a conflict that names each of
// them, and so is one of its own keys by its hash; a key that another account has is none.
func TestImportConflicts(t *testing.T) {
	h := newHarness(t)
	caller, other := h.caller("acme", "admin"), h.caller("other", "admin")
	own := must[*control.NewKey](h)(h.CreateKey(ctx(), caller, control.KeyInput{Name: "own", Scope: "read"}))
	named := func(suffix string) control.ImportInput {
		return foreign(func(in *control.ImportInput) { in.Secret += suffix })
	}
	hashed := func(secret string) control.ImportInput {
		return foreign(func(in *control.ImportInput) { in.Secret, in.SHA256 = "", hashOf(secret) })
	}
	had := h.importKeys(caller, named("-active"), named("-revoked"), named("-rotated"))
	must[*apikey.Key](h)(h.RevokeKey(ctx(), caller, had[1].ID, nil))
	made := must[*control.NewKey](h)(h.RotateKey(ctx(), caller, had[2].ID, 0, "", nil))
	if made.Imported || !strings.HasPrefix(made.Secret, "kg_") || made.Digest != apikey.DigestOf(made.Secret) || made.BucketID != had[2].ID {
		t.Errorf("a rotation made %+v; want one of Keygate's own keys that shares the limits", made)
	}
	for _, again := range []control.ImportInput{named("-active"), named("-revoked"), named("-rotated"), hashed(foreignKey + "-active"), hashed(own.Secret)} {
		field := "keys[1].key"
		if again.SHA256 != "" {
			field = "keys[1].sha256"
		}
		h.wantImportError(caller, fault.Conflict, field, named("-new"), again)
	}
	_, err := h.ImportKeys(ctx(), caller, []control.ImportInput{named("-active"), named("-new"), named("-revoked")})
	if _, body := fault.Response(err, "req_x"); !strings.Contains(string(body), `"errors":[{"field":"keys[0].key"`) || !strings.Contains(string(body), `{"field":"keys[2].key"`) || strings.Contains(string(body), "keys[1]") {
		t.Errorf("got %s; want both conflicts and not the new key", body)
	}
	if n := len(h.importKeys(other, named("-active"), named("-revoked"), hashed(own.Secret))); n != 3 {
		t.Errorf("another account imported %d keys; want all 3", n)
	}
}

// Guarantee: no actor imports a key that it could not create, and all keys are imported or none.
func TestImportNeedsTheScope(t *testing.T) {
	h := newHarness(t)
	writer := h.caller("acme", "write")
	h.wantImportError(writer, fault.Forbidden, "", foreign(nil), foreign(func(in *control.ImportInput) { in.Secret += "-admin"; in.Scope = "admin" }))
	h.wantImportError(writer, fault.Forbidden, "", foreign(func(in *control.ImportInput) { in.Level = "account" }))
	h.importKeys(writer, foreign(func(in *control.ImportInput) { in.Scope = "write" }))
}

// Guarantee: an import counts as so many keys against the bounds of the account.
func TestImportsAreBounded(t *testing.T) {
	h := newHarness(t)
	h.bounds = control.AccountBounds{LiveKeys: 5, Keys: 100}
	h.serve(h.store)
	caller := h.caller("acme", "admin") // with two keys
	nth := func(n int) []control.ImportInput {
		all := make([]control.ImportInput, n)
		for i := range all {
			all[i] = foreign(func(in *control.ImportInput) { in.Secret += fmt.Sprint("-", i) })
		}
		return all
	}
	h.wantImportError(caller, fault.Conflict, "", nth(4)...)
	h.importKeys(caller, nth(3)...)
	h.wantImportError(caller, fault.Conflict, "", foreign(nil))
}

// Guarantee: the verification of an imported key says whether gateways accept it, and knows those of its own account
// alone.
func TestVerifyImportedKey(t *testing.T) {
	h := newHarness(t)
	caller, other := h.caller("acme", "admin"), h.caller("other", "admin")
	made := h.importKeys(caller, foreign(nil))
	verify := func(c *control.Actor, secret, method string) *control.Verification {
		return must[*control.Verification](h)(h.VerifyKey(ctx(), c, secret, "", method, ""))
	}
	if v := verify(caller, foreignKey, "GET"); !v.Valid || v.Key.ID != made[0].ID {
		t.Errorf("got %+v; want the key to be valid", v)
	}
	if v := verify(caller, foreignKey, "POST"); v.Valid || v.Code != string(fault.ScopeInsufficient) {
		t.Errorf("got %+v; want %s", v, fault.ScopeInsufficient)
	}
	if v := verify(other, foreignKey, "GET"); v.Valid || v.Key != nil {
		t.Errorf("another account got %+v; want an unknown key", v)
	}
	must[*apikey.Key](h)(h.RevokeKey(ctx(), caller, made[0].ID, nil))
	if v := verify(caller, foreignKey, "GET"); v.Valid || v.Code != string(fault.KeyInvalid) {
		t.Errorf("got %+v for a revoked key; want %s", v, fault.KeyInvalid)
	}
}

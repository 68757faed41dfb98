package server_test

import (
	"database/sql"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/certificate/certificatetest"
	"github.com/keygate/keygate/internal/server"
)

// sealedBackup returns a backup with a value of each kind that is encrypted with the secret key, which is beside it.
func sealedBackup(t *testing.T) string {
	t.Helper()
	f := startServing(t)
	hook := must(f.Admin.CreateWebhook(t.Context(), client.CreateWebhookRequest{URL: "https://127.0.0.1:1/", Events: []string{"key.created"}}))
	must(f.Admin.RotateWebhookSecret(t.Context(), hook.WebhookID, 24))
	pair := certificatetest.New(t, "client.example")
	headers, cert, key := map[string]string{"X-Token": "t"}, string(pair.Cert), string(pair.Key)
	g := must(f.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{
		Name: "sealed", UpstreamURL: "https://127.0.0.1:1", UpstreamHeaders: &headers, UpstreamClientCertificate: &cert, UpstreamClientKey: &key,
	}))
	repository := `{"url":"https://127.0.0.1:1/r.git","branch":"main","path":"a.yaml","kind":"spec","credential":{"token":"t"},"commit_status":{"provider":"gitea","token":"t"}}`
	if got := f.Call("PUT", "/v1/gateways/"+g.GatewayID+"/repository", f.AdminKey, repository); got.Status != http.StatusOK && got.Status != http.StatusCreated {
		t.Fatalf("connecting a repository got %d %s", got.Status, got.Body)
	}
	f.Stop()
	file := filepath.Join(t.TempDir(), "copy.db")
	must(server.Backup(t.Context(), settings(t, f.DataDir), file, server.BackupOptions{SecretKey: true}))
	return file
}

// Guarantee: a restore tries the secret key on each kind of encrypted value, and is refused if it does not decrypt one
// of them, whose kind the error names.
func TestRestoreTriesEveryKindOfSecret(t *testing.T) {
	t.Parallel()
	file := sealedBackup(t)
	done, err := server.Restore(t.Context(), settings(t, t.TempDir()), file)
	if err != nil || done.SecretKey != server.KeyChecked {
		t.Fatalf("with the right key: got %+v, %v", done, err)
	}
	for kind, statement := range map[string]string{
		"its webhook signing secrets":          `UPDATE webhooks SET secret = randomblob(60)`,
		"its previous webhook signing secrets": `UPDATE webhooks SET old_secret = randomblob(60)`,
		"its upstream headers":                 `UPDATE gateways SET upstream = json_set(upstream, '$.headers.X-Token', 'AAAA')`,
		"its upstream client keys":             `UPDATE gateways SET upstream = json_set(upstream, '$.tls.client_key', 'AAAA')`,
		"its repository credentials":           `UPDATE repositories SET credential = randomblob(60)`,
		"its repository hook secrets":          `UPDATE repositories SET hook_secret = randomblob(60)`,
		"its commit status tokens":             `UPDATE repositories SET status_token = randomblob(60)`,
	} {
		other := filepath.Join(t.TempDir(), "other.db")
		for _, suffix := range []string{"", ".secret.key"} {
			if err := os.WriteFile(other+suffix, must(os.ReadFile(file+suffix)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		db := must(sql.Open("sqlite", other))
		result := must(db.ExecContext(t.Context(), statement))
		if n, err := result.RowsAffected(); n == 0 || err != nil {
			t.Errorf("%s: no value was changed (%v)", kind, err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		_, err := server.Restore(t.Context(), settings(t, dir), other)
		if err == nil || !strings.Contains(err.Error(), kind) || !strings.Contains(err.Error(), "nothing was restored") {
			t.Errorf("got the error %v, want one that names %s", err, kind)
		}
		if _, err := os.Stat(filepath.Join(dir, "keygate.db")); err == nil {
			t.Errorf("%s: a restore that was refused has left a database", kind)
		}
	}
}

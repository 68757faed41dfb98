package postgres

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest/postgrestest"
)

// pooler passes connections on to a server, as a pooler in transaction mode shows itself: its
// clients get a made-up process number, and no notifications.
func pooler(t *testing.T, server string) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			up, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(up, client)
				_ = up.Close()
			}()
			go func() {
				passMessages(client, up)
				_ = client.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// passMessages copies the messages of a server, each with a type and a length, until one side closes.
func passMessages(to io.Writer, from io.Reader) {
	const keyData, notification = 'K', 'A'
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(from, body); err != nil {
			return
		}
		switch head[0] {
		case notification:
			continue
		case keyData:
			binary.BigEndian.PutUint32(body, 1<<30)
		}
		if _, err := to.Write(append(head, body...)); err != nil {
			return
		}
	}
}

// Guarantee: an inspection reads the version, the schema and the bounds of the server, notices a
// pooler by its process number and by notifications that do not arrive, and changes nothing.
func TestInspect(t *testing.T) {
	url := postgrestest.Empty(t)
	i, err := Inspect(t.Context(), url, "a")
	if err != nil {
		t.Fatal(err)
	}
	if i.VersionNumber < OldestServer || i.ReadOnly || i.Pooled || i.Hosts != 1 || i.Fsync || i.SyncNames != "" || i.RoleLimit != -1 || i.MaxConnections != 397 {
		t.Errorf("got %+v", i)
	}
	if i.Schema.Current != 0 || i.Schema.Newest == 0 || i.SchemaErr != nil || i.Canary != nil {
		t.Errorf("got the schema %+v of an empty database, want 0: it must not be migrated", i)
	}
	if arrived, err := Notified(t.Context(), url, url); !arrived || err != nil {
		t.Errorf("notifications: got %v, %v", arrived, err)
	}

	server := postgrestest.Shared(t)
	pooled := strings.Replace(url, server.Addr, pooler(t, server.Addr), 1)
	if i, err = Inspect(t.Context(), pooled, "a"); err != nil || !i.Pooled {
		t.Errorf("through a pooler: got %+v, %v, want Pooled", i, err)
	}
	if arrived, err := Notified(t.Context(), pooled, pooled); arrived || err != nil {
		t.Errorf("notifications through a pooler: got %v, %v, want false", arrived, err)
	}
	if arrived, err := Notified(t.Context(), pooled, url); !arrived || err != nil {
		t.Errorf("notifications past a pooler: got %v, %v, want true", arrived, err)
	}
	if arrived, err := Notified(t.Context(), url, postgrestest.Empty(t)); arrived || err != nil {
		t.Errorf("notifications of another database: got %v, %v, want false", arrived, err)
	}
}

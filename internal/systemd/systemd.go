// Package systemd talks to the service manager that has started the process: it takes over the sockets
// that systemd has opened, and tells it when the server is ready, stops and is alive. Without systemd it
// does nothing.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// Sockets returns the listeners of the sockets that systemd has passed (sd_listen_fds), by the names that
// FileDescriptorName= gives them. It is an error if the name of a socket is not in known, if two sockets
// have the same name, or if a socket does not accept TCP connections. The second call returns nothing.
func Sockets(known ...string) (sockets map[string]net.Listener, err error) {
	sockets = map[string]net.Listener{}
	defer func() {
		if err != nil {
			for _, l := range sockets {
				err = errors.Join(err, l.Close())
			}
		}
	}()
	for _, file := range activation.Files(true) {
		name := file.Name()
		l, listenErr := net.FileListener(file) // a copy
		closeErr := file.Close()
		if listenErr != nil || closeErr != nil {
			err = errors.Join(err, fmt.Errorf("socket %s of systemd cannot be listened on: set ListenStream= to a port or an address with a port: %w", name, errors.Join(listenErr, closeErr)))
			continue
		}
		switch _, tcp := l.(*net.TCPListener); {
		case !tcp:
			err = errors.Join(err, fmt.Errorf("socket %s of systemd is not a TCP socket: set ListenStream= to a port or an address with a port", name))
		case !slices.Contains(known, name):
			err = errors.Join(err, fmt.Errorf("socket %s of systemd has a name that is not known: set FileDescriptorName= to one of %s", name, strings.Join(known, ", ")))
		case sockets[name] != nil:
			err = errors.Join(err, fmt.Errorf("systemd has passed two sockets with the name %s: only one can be used", name))
		default:
			sockets[name] = l
			continue
		}
		err = errors.Join(err, l.Close())
	}
	return sockets, err
}

// Ready tells systemd that the server is ready, as Type=notify expects. With WatchdogSec= it also
// reports, twice within that time and until ctx ends, that the server is alive, if livez responds with
// 200. Without such reports systemd restarts the server.
func Ready(ctx context.Context, livez string, log *slog.Logger) {
	notify(log, daemon.SdNotifyReady)
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("systemd's watchdog is not used: WATCHDOG_USEC or WATCHDOG_PID cannot be read", "error", err)
	}
	if err != nil || interval <= 0 {
		return
	}
	go watch(ctx, livez, interval/2, log)
}

// Stopping tells systemd that the server has begun to stop.
func Stopping(log *slog.Logger) { notify(log, daemon.SdNotifyStopping) }

// watch tells systemd in each interval that the server is alive.
func watch(ctx context.Context, livez string, interval time.Duration, log *slog.Logger) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	client := &http.Client{Timeout: interval, Transport: &http.Transport{}} // past the proxy of the environment
	for {
		if err := alive(ctx, client, livez); err == nil {
			notify(log, daemon.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			log.Error("the server does not respond to itself: systemd will restart it", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// alive returns nil if livez responds with 200.
func alive(ctx context.Context, client *http.Client, livez string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, livez, nil)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask whether the server is alive: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s responded with %s", livez, resp.Status)
	}
	return nil
}

func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd cannot be told about the state of the server", "state", state, "error", err)
	}
}

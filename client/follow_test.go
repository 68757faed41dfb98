package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/keygate/keygate/client"
)

// Guarantee: FollowRequests returns requests, and the counts of missing ones, in the order of the
// stream. It ignores unknown events, and distinguishes a stream that ended from a stream that broke
// off.
func TestFollowRequests(t *testing.T) {
	for _, complete := range []bool{true, false} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.URL.String(); got != "/v1/requests/stream?gateway_id=gw_1&status=429" {
				t.Errorf("got %s", got)
			}
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, ": from now on\n\nevent: request\ndata: {\"request_id\":\"req_1\",\"status\":429}\n\n"+
				": still here\n\nevent: later\ndata: {\"request_id\":\"req_2\"}\n\nevent: skipped\ndata: {\"count\":9007199254740993}\n\n")
			w.(http.Flusher).Flush()
			if !complete {
				panic(http.ErrAbortHandler)
			}
		})
		var got []string
		var failure error
		for r, err := range c.FollowRequests(t.Context(), client.RequestFilter{GatewayID: "gw_1", Status: 429}) {
			switch {
			case err != nil:
				failure = err
			case r.Request != nil:
				got = append(got, r.Request.RequestID)
			default:
				got = append(got, fmt.Sprint(r.Skipped))
			}
		}
		if fmt.Sprint(got) != "[req_1 9007199254740993]" {
			t.Errorf("complete %v: got %v", complete, got)
		}
		var unreachable *client.UnreachableError
		if complete != (failure == nil) || !complete && !errors.As(failure, &unreachable) {
			t.Errorf("complete %v: got the error %v", complete, failure)
		}
	}
}

// Guarantee: a refused stream returns the error of the server, and an event that is not the record of a
// request ends the loop with an error.
func TestFollowRequestsFails(t *testing.T) {
	for _, tc := range []struct {
		status int
		body   string
	}{{http.StatusTooManyRequests, `{"error":"rate_limit_exceeded","message":"8 streams of this account are running"}`}, {http.StatusOK, "event: request\ndata: {\n\n"}} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.body)
		})
		times := 0
		for r, err := range c.FollowRequests(t.Context(), client.RequestFilter{}) {
			times++
			var refused *client.Error
			if err == nil || r.Request != nil || errors.As(err, &refused) != (tc.status != http.StatusOK) {
				t.Errorf("status %d: got %+v and the error %v", tc.status, r, err)
			}
		}
		if times != 1 {
			t.Errorf("status %d: the loop ran %d times, want 1", tc.status, times)
		}
	}
}

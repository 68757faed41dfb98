package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// model answers as a service does that follows OpenAI's API: as a whole, or as a stream. A word is a token.
type model struct {
	key   string        // that callers must have
	pause time.Duration // before each word of a stream
}

const answer = "A gateway stands in front of a service, asks each caller for a key, counts what it uses, and refuses what is more than it may use."

// ServeHTTP implements http.Handler.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Model         string
		Messages      []struct{ Content string }
		Stream        bool
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+m.key:
		http.Error(w, `{"error": {"message": "Incorrect API key provided"}}`, http.StatusUnauthorized)
		return
	case json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&asked) != nil:
		http.Error(w, `{"error": {"message": "The body is not valid JSON"}}`, http.StatusBadRequest)
		return
	}
	words := strings.SplitAfter(answer, " ")
	usage := map[string]int{"prompt_tokens": 0, "completion_tokens": len(words)}
	for _, m := range asked.Messages {
		usage["prompt_tokens"] += len(strings.Fields(m.Content))
	}
	usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
	if !asked.Stream {
		w.Header().Set("Content-Type", "application/json")
		message := map[string]any{"message": map[string]string{"role": "assistant", "content": answer}}
		_ = json.NewEncoder(w).Encode(map[string]any{"object": "chat.completion", "model": asked.Model, "choices": []any{message}, "usage": usage})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(choices []any, usage any) {
		data, _ := json.Marshal(map[string]any{"object": "chat.completion.chunk", "model": asked.Model, "choices": choices, "usage": usage})
		fmt.Fprintf(w, "data: %s\n\n", data)
		_ = http.NewResponseController(w).Flush()
	}
	for _, word := range words {
		select {
		case <-time.After(m.pause):
		case <-r.Context().Done(): // the caller has gone
			return
		}
		event([]any{map[string]any{"index": 0, "delta": map[string]string{"content": word}}}, nil)
	}
	if asked.StreamOptions.IncludeUsage {
		event([]any{}, usage)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

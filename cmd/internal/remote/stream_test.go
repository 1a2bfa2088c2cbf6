package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The client goes on after the last whole message, says once that a connection was lost, and ends with an error that
// another try does not change.
func TestEventsGoOnAfterTheLastMessage(t *testing.T) {
	answers := []string{
		"retry: 2000\nid: 1\n\n: heartbeat\n\nid: 2\nevent: x\ndata: two\n\nid: 3\ndata: cut",
		"", "", // not ready
		"id: 3\ndata: three\n\nid: 9\n\n",
		"id: 10\ndata: ten\ndata: more\n\n",
	}
	var after []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		after = append(after, r.Header.Get("Last-Event-ID"))
		require.Equal(t, "a.b", r.URL.Query().Get("project"))
		n := len(after) - 1
		switch {
		case n >= len(answers):
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":{"code":"auth.invalid","message":"make a new one"}}`)
		case answers[n] == "":
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"error":{"code":"not_ready"}}`)
		default:
			fmt.Fprint(w, answers[n])
		}
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	s := Server{URL: server.URL, TokenFile: token, pause: time.Millisecond}
	var got []string
	lost := 0
	err := s.Events(t.Context(), url.Values{"project": {"a.b"}}, func(error) { lost++ }, func(data string) error {
		got = append(got, data)
		return nil
	})
	require.ErrorContains(t, err, "auth.invalid")
	require.Equal(t, []string{"two", "three", "ten\nmore"}, got)
	require.Equal(t, []string{"", "2", "2", "2", "9", "10"}, after)
	require.Equal(t, 3, lost, "once for each connection that was accepted")
}

func TestEventsEndWithTheFirstError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "data: x\n\n")
	}))
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	s := Server{URL: server.URL, TokenFile: token, pause: time.Millisecond}
	stop := errors.New("the output is closed")
	never := func(error) { t.Error("lost") }
	require.ErrorIs(t, s.Events(t.Context(), nil, never, func(string) error { return stop }), stop)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, s.Events(ctx, nil, never, func(string) error { cancel(); return nil }))
	server.Close()
	require.ErrorContains(t, s.Events(t.Context(), nil, never, nil), "no answer of the server")
}

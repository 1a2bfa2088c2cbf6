package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"berth/cmd/internal/cli"
)

const (
	// silence is how long a stream may be silent. The daemon sends a comment every 15 seconds.
	silence = 50 * time.Second
	// maxStreamPause is the longest time between two connections.
	maxStreamPause = 30 * time.Second
	// maxStreamLine bounds a line of a stream in bytes.
	maxStreamLine = 4 << 20
)

// errSilent: the connection is dead.
var errSilent = errors.New("the server sent nothing for a while")

// Events calls take with the data of each event of the estate, from now on or as the query says, until ctx ends. It
// connects again after the last id when the stream ends, after a growing pause, and calls lost once each time. It
// returns the error of the first connection, of take, and what repeating does not change, such as an invalid token.
func (s *Server) Events(ctx context.Context, query url.Values, lost func(error), take func(data string) error) error {
	f := &follower{server: s, query: query, take: take}
	pause, isLost := time.Duration(0), false
	for {
		f.got = false
		err := f.connect(ctx)
		var taking *takeError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &taking):
			return taking.err
		case !f.begun || !again(err):
			return err
		case f.got:
			pause, isLost = 0, false
		}
		if !isLost {
			lost(err)
			isLost = true
		}
		pause = min(max(2*pause, s.firstPause()), maxStreamPause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// firstPause is the time before the second connection.
func (s *Server) firstPause() time.Duration {
	if s.pause > 0 {
		return s.pause
	}
	return time.Second
}

// takeError is an error of the caller of Events.
type takeError struct{ err error }

func (e *takeError) Error() string { return e.err.Error() }

// follower is a client of the stream of events.
type follower struct {
	server *Server
	query  url.Values
	take   func(data string) error
	id     string // of the last message; "": none
	begun  bool   // one connection was accepted
	got    bool   // the present connection was accepted
}

// connect reads the stream until it ends. The error is never nil.
func (f *follower) connect(ctx context.Context) error {
	base, token, err := f.server.find()
	if err != nil {
		return err
	}
	path := "/api/v1/events/stream"
	if f.server.Reason != "" {
		path = "/api/v1/admin/events/stream"
	}
	target := strings.TrimSuffix(base, "/") + path
	if len(f.query) > 0 {
		target += "?" + f.query.Encode()
	}
	leader, err := f.read(ctx, target, token)
	if leader == "" {
		return err
	}
	if err := checkAddress(leader, strings.HasPrefix(target, "https://")); err != nil {
		return fmt.Errorf("%w: %w", errLeader, err)
	}
	_, err = f.read(ctx, leader, token)
	return err
}

// read reads the stream at an address, or returns the address of the leader.
func (f *follower) read(ctx context.Context, target, token string) (leader string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return "", cli.Usage(fmt.Errorf("--server: %w", err))
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "text/event-stream")
	if f.server.Reason != "" {
		req.Header.Set("X-Break-Glass", f.server.Reason)
	}
	if f.id != "" {
		req.Header.Set("Last-Event-ID", f.id)
	}
	watch := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watch.Stop()
	res, err := send(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		return res.Header.Get("Location"), errorOf(req, res, body)
	}
	f.begun, f.got = true, true
	err = f.messages(res.Body, func() { watch.Reset(silence) })
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		err = cause
	}
	return "", err
}

// messages takes the messages of a stream (WHATWG HTML, 9.2.6) until it ends. A message that is cut off is not taken.
func (f *follower) messages(in io.Reader, alive func()) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxStreamLine)
	id := f.id
	var data []string
	for lines.Scan() {
		alive()
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if len(data) > 0 {
				if err := f.take(strings.Join(data, "\n")); err != nil {
					return &takeError{err}
				}
			}
			f.id, data = id, nil
		case field == "id" && !strings.Contains(value, "\x00"):
			id = value
		case field == "data":
			data = append(data, value)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("the stream of the server broke off: %w", err)
	}
	return errors.New("the server ended the stream")
}

package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"berth/runtimes"
	"berth/runtimes/host/agent"
)

// session is a run of berth-host. It is used by one call at a time.
type session struct {
	in     io.Writer
	hangUp func() // closes the session without waiting; may be called again
	lines  chan []byte
	dead   chan struct{} // closed when the helper's output has ended
	err    error         // why; set before dead is closed
	stderr *stderrText
	used   bool        // has answered before
	expire *time.Timer // while it is idle
	hello  agent.Hello
}

// newSession starts reading from out. over is closed when the helper's process has
// ended and stderr is complete.
func newSession(in io.Writer, out io.Reader, stderr *stderrText, over <-chan struct{}, hangUp func()) *session {
	s := &session{in: in, hangUp: hangUp, lines: make(chan []byte), dead: make(chan struct{}), stderr: stderr}
	stop := make(chan struct{})
	s.hangUp = sync.OnceFunc(func() {
		close(stop)
		hangUp()
	})
	go func() {
		defer close(s.dead)
		r := bufio.NewReader(out)
		for {
			line, err := agent.ReadLine(r, agent.MaxResponse)
			if err != nil {
				s.err = err
				select { // stderr explains the end
				case <-over:
				case <-stop:
				case <-time.After(300 * time.Millisecond):
				}
				return
			}
			select {
			case s.lines <- line:
			case <-stop:
				s.err = io.ErrClosedPipe
				return
			}
		}
	}()
	return s
}

// line returns the next line of the helper.
func (s *session) line(ctx context.Context) ([]byte, error) {
	select {
	case line := <-s.lines:
		return line, nil
	case <-s.dead:
		return nil, s.ended()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ended returns the reason of the session's end.
func (s *session) ended() error {
	msg := "the session ended"
	if !errors.Is(s.err, io.EOF) {
		msg += ": " + s.err.Error()
	}
	if e := s.stderr.String(); e != "" {
		msg += ": " + e
		if strings.Contains(e, "berth-host: command not found") { // sudo says so of one that is not executable, too
			msg += "; install the berth-host of this release"
		}
	}
	return errors.New(msg)
}

// readHello waits for the first line of the helper.
func (s *session) readHello(ctx context.Context) error {
	line, err := s.line(ctx)
	if err != nil {
		return err
	}
	h := &s.hello
	switch err := json.Unmarshal(line, h); {
	case err != nil || h.Berth == 0:
		return wrongHelper("the program is not berth-host: it printed %.80q; install the berth-host of this release", line)
	case h.Berth < agent.Protocol:
		return wrongHelper("berth-host %s has protocol %d, and this daemon needs %d: install the berth-host of the daemon's release",
			h.Version, h.Berth, agent.Protocol)
	}
	return nil
}

func wrongHelper(format string, args ...any) error {
	return &runtimes.HelperError{Message: fmt.Sprintf(format, args...)}
}

// errNotSent: the helper did not get the whole request and did nothing.
var errNotSent = errors.New("the request could not be sent")

// call sends a request and waits for its answer. After an error the session has to be
// closed.
func (s *session) call(ctx context.Context, id uint64, request []byte) (*agent.Response, error) {
	sent := make(chan error, 1)
	go func() { // hangUp ends a write to a hanging helper
		n, err := s.in.Write(request)
		if err == nil && n < len(request) {
			err = io.ErrShortWrite
		}
		sent <- err
	}()
	select {
	case err := <-sent:
		if err != nil {
			// Without the line break at its end the helper ignores the request.
			return nil, fmt.Errorf("%w: %w", errNotSent, err)
		}
	case <-s.dead:
		return nil, s.ended()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	line, err := s.line(ctx)
	if err != nil {
		return nil, err
	}
	var resp agent.Response
	if err := json.Unmarshal(line, &resp); err != nil || resp.ID != id {
		return nil, fmt.Errorf("the answer is not that of the request: %.80q", line)
	}
	s.used = true
	return &resp, nil
}

// stderrText keeps the first KiB of stderr.
type stderrText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *stderrText) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if room := 1024 - s.buf.Len(); room > 0 {
		s.buf.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

func (s *stderrText) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(bytes.TrimSpace(s.buf.Bytes()))
}

// opener starts sessions on one host.
type opener interface {
	// open starts a session and reads its hello. It returns when ctx ends.
	open(ctx context.Context) (*session, error)
	close()
}

var errClosed = errors.New("closed")

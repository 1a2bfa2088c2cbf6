package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"berth/runtimes/host/agent"
)

// session is one run of berth-host. One call at a time uses it.
type session struct {
	in     io.Writer
	hangUp func() // ends the session at once, without waiting; may be called again
	lines  chan []byte
	dead   chan struct{} // closed when the far side's output has ended
	err    error         // why; set before dead is closed
	stderr *said
	used   bool // has answered before
	far    agent.Hello
}

// newSession reads from out until it ends. It returns before anything is said.
// over is closed when the far side's process has ended and stderr is whole.
func newSession(in io.Writer, out io.Reader, stderr *said, over <-chan struct{}, hangUp func()) *session {
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
				select { // what it said last explains its end
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

// line is the next line the far side writes.
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

// ended says why there are no more lines.
func (s *session) ended() error {
	msg := "the session ended"
	if !errors.Is(s.err, io.EOF) {
		msg += ": " + s.err.Error()
	}
	if e := s.stderr.String(); e != "" {
		msg += ": " + e
	}
	return errors.New(msg)
}

// hello waits for the far side's first line.
func (s *session) hello(ctx context.Context) error {
	line, err := s.line(ctx)
	if err != nil {
		return err
	}
	h := &s.far
	switch err := json.Unmarshal(line, h); {
	case err != nil || h.Berth == 0:
		return fmt.Errorf("the far side is no berth-host: it says %.80q", line)
	case h.Berth != agent.Protocol:
		return fmt.Errorf("berth-host %s speaks protocol %d, this Berth %d: install the berth-host of the same release", h.Version, h.Berth, agent.Protocol)
	}
	return nil
}

// errNotSent is a request of which the far side has not got all: it did nothing.
var errNotSent = errors.New("the request could not be sent")

// call sends a request and waits for its answer. After an error the session is
// of no more use, and must be hung up.
func (s *session) call(ctx context.Context, id uint64, request []byte) (*agent.Response, error) {
	sent := make(chan error, 1)
	go func() { // a write to a far side that hangs ends with hangUp
		n, err := s.in.Write(request)
		if err == nil && n < len(request) {
			err = io.ErrShortWrite
		}
		sent <- err
	}()
	select {
	case err := <-sent:
		if err != nil {
			// Its last byte is the end of the line, without which nothing is done.
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
		return nil, fmt.Errorf("the far side does not answer what was asked: %.80q", line)
	}
	s.used = true
	return &resp, nil
}

// said is the start of what a helper, or what should start it, wrote on stderr.
type said struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if room := 1024 - s.buf.Len(); room > 0 {
		s.buf.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(bytes.TrimSpace(s.buf.Bytes()))
}

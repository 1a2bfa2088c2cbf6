package object

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// Many returns blobs of the mirror by their ids, until their bytes exceed limit together. Git reads many objects in a
// fraction of the time that Read takes for each. What is missing, for any reason, is left to Read: the caller gets
// the same content and errors without Many.
func (r *Reader) Many(ctx context.Context, ids []plumbing.Hash, limit int64) map[plumbing.Hash][]byte {
	if len(ids) == 0 {
		return nil
	}
	r.Swap.RLock()
	defer r.Swap.RUnlock()
	ctx, stop := context.WithCancel(ctx)
	var wanted strings.Builder
	for _, id := range ids {
		wanted.WriteString(id.String() + "\n")
	}
	out, in := io.Pipe()
	ended := make(chan struct{})
	defer func() { // git reads the mirror until it has ended
		stop()
		_ = out.Close()
		<-ended
	}()
	go func() {
		defer close(ended)
		// In a partial clone, git would fetch what is missing.
		_, err := ExecTo(ctx, strings.NewReader(wanted.String()), in, []string{"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1"}, "--git-dir", r.Mirror.Dir, "cat-file", "--batch", "--buffer")
		in.CloseWithError(err)
	}()
	read := map[plumbing.Hash][]byte{}
	lines := bufio.NewReaderSize(out, 1<<16)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return read
		}
		var id, kind string
		var size int64
		if n, _ := fmt.Sscanf(line, "%s %s %d", &id, &kind, &size); n < 3 {
			continue // the object is missing
		}
		if size > limit && len(read) > 0 {
			return read
		}
		if size > limit { // the next ones may not be as large
			if _, err := io.CopyN(io.Discard, lines, size+1); err != nil {
				return read
			}
			continue
		}
		limit -= size
		data := make([]byte, size+1) // a line break ends the object
		if _, err := io.ReadFull(lines, data); err != nil {
			return read
		}
		if h := plumbing.NewHash(id); Hash(plumbing.BlobObject, data[:size]) == h {
			read[h] = data[:size]
		}
	}
}

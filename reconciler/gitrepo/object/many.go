package object

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// Many returns blobs of the mirror by their ids, until git's output is longer than limit. Git reads many objects in a
// fraction of the time that Read takes for each. The result may lack blobs, for any reason: the caller reads them with
// Read, and gets the same content and errors without Many.
func (r *Reader) Many(ctx context.Context, ids []plumbing.Hash, limit int) map[plumbing.Hash][]byte {
	if len(ids) == 0 {
		return nil
	}
	r.Swap.RLock()
	defer r.Swap.RUnlock()
	var wanted strings.Builder
	for _, id := range ids {
		wanted.WriteString(id.String() + "\n")
	}
	out := bounded{limit: limit}
	// In a partial clone, git would fetch missing objects. After an error, each object written before it is complete.
	_, _ = ExecTo(ctx, strings.NewReader(wanted.String()), &out, []string{"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1"}, "--git-dir",
		r.Mirror.Dir, "cat-file", "--batch", "--buffer")
	read := map[plumbing.Hash][]byte{}
	for left := out.text; len(left) > 0; {
		line, rest, _ := bytes.Cut(left, []byte("\n"))
		left = rest
		head := strings.Fields(string(line)) // id, kind and size
		if len(head) < 3 {
			continue // the object is missing
		}
		size, err := strconv.Atoi(head[2])
		if err != nil || size >= len(left) { // a line break ends an object
			break
		}
		data := left[:size:size]
		left = left[size+1:]
		if h := plumbing.NewHash(head[0]); Hash(plumbing.BlobObject, data) == h {
			read[h] = data
		}
	}
	return read
}

// bounded keeps written bytes up to its limit, and fails beyond it.
type bounded struct {
	text  []byte
	limit int
}

var errLimit = errors.New("the output is longer than asked for")

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.limit-len(b.text))
	b.text = append(b.text, p[:n]...)
	if n < len(p) {
		return n, errLimit
	}
	return n, nil
}

package gittest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/memory"
)

// receive answers a push as git receive-pack does, and returns true. It leaves to git a push that names more than one
// ref, that deletes one, or that asks for a sideband, as the program git does, and all pushes to a repository with hooks.
// Unlike git it looks for the pushed commit only, not for all objects that the commit needs.
func (s *Server) receive(w http.ResponseWriter, body []byte) bool {
	hooks, _ := os.ReadDir(filepath.Join(s.Dir, "hooks"))
	req := packp.NewReferenceUpdateRequest()
	if len(hooks) > 0 || req.Decode(bytes.NewReader(body)) != nil || len(req.Commands) != 1 || req.Commands[0].Action() == packp.Delete ||
		req.Capabilities.Supports(capability.Sideband) || req.Capabilities.Supports(capability.Sideband64k) {
		return false
	}
	c := req.Commands[0]
	report := packp.ReportStatus{UnpackStatus: "ok"}
	status := &packp.CommandStatus{ReferenceName: c.Name, Status: "ok"}
	report.CommandStatuses = append(report.CommandStatuses, status)
	objects := s.objects()
	if err := unpack(req.Packfile, objects); err != nil {
		report.UnpackStatus, status.Status = oneLine(err), "unpacker error"
	} else if err := objects.HasEncodedObject(c.New); err != nil {
		status.Status = "missing necessary objects"
	} else if err := s.moveRef(c); err != nil {
		status.Status = oneLine(err)
	}
	w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
	_ = report.Encode(w) // the client may be gone
	return true
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }

// unpack adds each object of a pack as a file, as git does with a small pack, so that readers which know the packs find it.
func unpack(pack io.Reader, into *filesystem.Storage) error {
	of := memory.NewStorage()
	if err := packfile.UpdateObjectStorage(of, pack); err != nil && !errors.Is(err, packfile.ErrEmptyPackfile) {
		return err
	}
	for _, o := range of.Objects {
		if _, err := into.SetEncodedObject(o); err != nil {
			return err
		}
	}
	return nil
}

// moveRef moves a ref if it is where the push says, with git's lock of the ref.
func (s *Server) moveRef(c *packp.Command) error {
	file := filepath.Join(s.Dir, filepath.FromSlash(c.Name.String()))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = lock.WriteString(c.New.String() + "\n")
	if err = errors.Join(err, lock.Close()); err == nil && plumbing.NewHash(s.Ref(c.Name.String())) != c.Old {
		err = errors.New("failed to update ref")
	}
	if err == nil {
		err = os.Rename(lock.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(lock.Name()))
	}
	return nil
}

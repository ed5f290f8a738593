// SPDX-License-Identifier: Apache-2.0

package testvectors_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/treaty-node/treaty/testvectors"
)

func TestEveryFolderNamesItsSource(t *testing.T) {
	folders, err := fs.ReadDir(testvectors.FS(), ".")
	if err != nil || len(folders) == 0 {
		t.Fatalf("ReadDir: %d folders, %v", len(folders), err)
	}
	for _, f := range folders {
		readme, err := testvectors.Read(f.Name() + "/README.md")
		if err != nil {
			t.Errorf("%s: %v", f.Name(), err)
			continue
		}
		text := strings.ToLower(strings.Join(strings.Fields(string(readme)), " "))
		if !strings.Contains(text, "licence") && !strings.Contains(text, "legal provisions") {
			t.Errorf("%s: the README names no licence", f.Name())
		}
	}
}

func TestFilesAreNotEmptyAndJSONParses(t *testing.T) {
	err := fs.WalkDir(testvectors.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := testvectors.Read(name)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, ".json") && !json.Valid(data) {
			t.Errorf("%s is not JSON", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLoadersFailOnZeroVectors(t *testing.T) {
	if _, err := testvectors.List[any]("rfc9530/digests.json", "nothing"); !errors.Is(err, testvectors.ErrNoVectors) {
		t.Errorf("missing member: %v", err)
	}
	if _, err := testvectors.List[any]("rfc9530/none.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := testvectors.List[any]("rfc9530/digests.json"); err == nil {
		t.Error("an object was taken for a list")
	}
	if list, err := testvectors.List[any]("rfc9530/digests.json", "digests"); err != nil || len(list) < 5 {
		t.Errorf("%d digests, %v", len(list), err)
	}
}

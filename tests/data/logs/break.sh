# Breaks one thing for the script that runs next; sourced by provoke.py, a function for each "# word: value" of cases.scripts.
# Set by the caller: PACKAGES (site-packages), MODEL (a good model folder), HEADERS (the prefix with include/).

variable() { export "$(eval echo "\"$1\"")"; }

hide() { mkdir -p none; mount --bind none "$PACKAGES/$1"; }

hide_headers() { mkdir -p none; mount --bind none "$HEADERS/include"; }

# An assembler of another CUDA version.
old_ptxas() {
    cat > ptxas <<'END'
#!/bin/sh
if [ "$1" = --version ]; then
    echo "Cuda compilation tools, release 11.8, V11.8.89"
else
    echo "ptxas kernel.ptx, line 5; fatal   : Unsupported .version 8.4; current version is '7.8'" >&2
    exit 255
fi
END
    chmod +x ptxas
    export TRITON_PTXAS_PATH=$PWD/ptxas
}

# The same packages, but torch says that it is older.
torch_version() {
    mkdir old
    for item in "$PACKAGES"/*; do ln -s "$item" old/; done
    rm old/torch-*.dist-info
    cp -r "$PACKAGES"/torch-*.dist-info "old/torch-$1.dist-info"
    sed -i "s/^Version: .*/Version: $1/" "old/torch-$1.dist-info/METADATA"
    export PYTHONPATH=$PWD/old
}

edited() { cp -r "$MODEL" edited; }

model_type() { edited; sed -i "s/\"model_type\": \"[a-z]*\"/\"model_type\": \"$1\"/" edited/config.json; }

own_code() { model_type brandnew; sed -i '0,/{/s//{"auto_map": {"AutoConfig": "own.Config"},/' edited/config.json; echo > edited/own.py; }

cut() { edited; truncate -s -40 "edited/$1"; }

remove() { edited; rm "edited/$1"; }

pointer() { edited; printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n' > "edited/$1"; }

pieces() {
    mkdir pieces
    cp "$MODEL/config.json" pieces/
    echo x > pieces/tokenizer.model
    echo '{"tokenizer_class": "LlamaTokenizer"}' > pieces/tokenizer_config.json
}

no_network() { :; }

# A server whose certificate nobody knows.
tls() {
    openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost 2> /dev/null
    (openssl s_server -accept 44399 -key key.pem -cert cert.pem -www -quiet > /dev/null 2>&1 &)
    sleep 1
    export HF_ENDPOINT=https://localhost:44399
}

small_disk() { mkdir small; mount -t tmpfs -o size=1m none small; }

read_only() { mkdir fixed; mount -t tmpfs -o ro none fixed; }

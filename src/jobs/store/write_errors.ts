/** The server's errors that the stores expect; read in one place for every store of ours. */
export * from '../../common/utils/write_errors.js';

export { default as puppeteer } from 'puppeteer-core';
export * as selenium from 'selenium-webdriver';
